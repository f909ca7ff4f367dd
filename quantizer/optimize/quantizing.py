"""From ranges to parameters, layer by layer, and from those to the graph of codes that is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import torch

from quantizer.calibration.statistics import UNTRIMMED, observe
from quantizer.calibration.strategies import calibrated
from quantizer.core.case import AttrValue as CaseAttr
from quantizer.core.case import Range
from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.formats.compass_params import AXES, TOP_RANGE, TOP_SCALE, TOP_ZP, WINOGRAD, scale_of
from quantizer.ir.formats.compass_quantized import file_format, filed, float_layer, provided_layer
from quantizer.ir.formats.compass_text import format_loosely
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, container
from quantizer.numerics.logarithm_tables import LOGARITHMS, SHARES
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.numerics.rules import Ends, activation_params, weight_part
from quantizer.optimize import layers_without_spec
from quantizer.optimize.scaled_products import SCALED, as_scaled
from quantizer.optimize.settings import TWO_TABLES, Settings
from quantizer.plugins.layers_without_spec import LoneLayer
from quantizer.runtime.engines.builtin import BuiltinEngine

FLOAT_BIASES = ("biases", "negative_slope")
"""Constants that stay float32 in a layer of 16-bit floats."""
PER_CHANNEL_REFUSED = (
    "addition",
    "subtraction",
    "multiplication",
    "comparison",
    "softmax",
    "log_softmax",
    "normalization",
    "logistic",
    "hyperbolic_tangent",
    "table",
    "positive_table",
    "root",
    "trigonometric",
    "reciprocal",
    "clipped_table",
    "division",
)
"""Families that have no activations with a scale for each channel; others take one scale all the same (Compass)."""


BY_WINOGRAD: Mapping[str, AttrValue] = {
    "with_winograd": True,
    "Fmnrs": (2, 3),
    "kernel_x": 4,
    "kernel_y": 3,
    "stride_x": 2,
    "stride_y": 1,
}
"""What a layer says that is computed by Winograd's algorithm: two outputs at a time, of four places of a row."""
AS_WIDE_AS_INPUTS = ("concatenation", "log_softmax")
"""Families whose outputs have as many bits as their widest input, whatever the layer is configured to."""
STAGES = (SHARES, LOGARITHMS)
"""What a LogSoftmax by two tables computes on the way to its output."""
WIDEST = 16
"""Most bits of an activation's codes."""


@dataclass(frozen=True)
class Calibrated:
    """The range of an activation, and its smallest observed value, which decides an input's sign."""

    low: float
    high: float
    observed_low: float

    @property
    def range(self) -> Range:
        """The two ends."""
        return self.low, self.high


@dataclass(frozen=True)
class Own:
    """Constants of one layer that are not those of the float graph, and the ends of its weights."""

    weights: torch.Tensor
    """In the operator's order."""
    ends: Ends
    biases: torch.Tensor | None = None


@dataclass(frozen=True)
class Layers:
    """What every layer's parameters are chosen from."""

    specs: Mapping[str, Spec]
    platform: Platform
    settings: Mapping[str, Settings]
    ranges: Mapping[str, Calibrated]
    invariant: frozenset[str] = frozenset()
    """Input and Constant layers whose values are codes."""
    samples: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Float tensors of one calibration batch, for layers of plugins."""
    rounded: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Layer -> weights in the operator's order, each on the grid that its rule chose: codes need not be the nearest."""
    learned: Mapping[str, Own] = field(default_factory=dict)
    """Layer -> constants that it learned."""


@dataclass(frozen=True)
class Decided:
    """Parameters of every tensor that a layer makes, and what each layer's rule provided."""

    tensors: Mapping[str, QParams]
    provided: Mapping[str, Parameters]
    lone: Mapping[str, LoneLayer] = field(default_factory=dict)
    """Layers that plugins alone know, quantized."""


def decide(graph: Graph, layers: Layers) -> Decided:
    """Return the parameters of every layer of a native float graph, those that stay in floating point included."""
    tensors: dict[str, QParams] = {}
    provided: dict[str, Parameters] = {}
    lone: dict[str, LoneLayer] = {}
    for name, node in source_layers(graph).items():
        tensors[name] = source_params(graph.tensor(name), node, layers)
    for node in graph.order:
        if isinstance(node.parameters, LoneLayer):
            spans = [layers.ranges[name].range for name in node.outputs]
            own = layers.settings[node.name]
            lone[node.name] = made = layers_without_spec.decided(
                node.parameters, node, own, layers.samples, tensors, spans
            )
            tensors |= dict(zip(node.outputs, made.outputs, strict=True))
            continue
        if node.op not in layers.specs:
            raise UnsupportedError(f"layer {node.name!r}: {node.op}: no operator of ours is that layer.")
        provided[node.name] = parameters = _parameters(graph, node, tensors, layers)
        for key, name in layers.specs[node.op].keys_of(node.outputs):
            tensors[name] = parameters.outputs[key]
    return Decided(tensors, provided, lone)


def source_layers(graph: Graph) -> dict[str, Node]:
    """Return tensor -> its Input or Constant layer, for those that nodes read and those that are inputs."""
    read = {name for node in graph.nodes for name in node.inputs} | set(graph.inputs) | set(graph.outputs)
    sources = cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ()))
    return {name: node for _, node, _ in sources for name in node.outputs if name in read}


def source_params(tensor: Tensor, node: Node, layers: Layers) -> QParams:
    """Return the parameters of an Input or Constant: unsigned where nothing below 0 was observed; codes stay codes."""
    settings = layers.settings[node.name]
    span = layers.ranges[tensor.name]
    if tensor.dtype.is_integer and node.op == "Constant":
        return invariant_params(constant_format(tensor.dtype, span, settings))
    if tensor.dtype.kind != "float" or node.name in layers.invariant:
        return invariant_params(tensor.dtype if tensor.dtype.is_integer else DTYPES["int32"])
    signed = span.observed_low < 0.0 or bool(settings["force_dtype_int"])
    part = settings.scheme().activation
    return activation_params(span.low, span.high, part, layers.platform.parameters, signed=signed)


def constant_format(dtype: DType, span: Calibrated, settings: Settings) -> DType:
    """Return the format of a constant that holds integers: 8, 16 or 32 bits, as its values need, if these are fewer.

    Of narrowed ones there are as many bits as an activation has, at least; a type with a sign keeps it.
    """
    forced = bool(settings["force_dtype_int"])
    signed = dtype.kind == "int" or forced or span.observed_low < 0.0
    ends = -span.low - 1 if signed else 0.0, span.high
    bits = next(size for size in (8, 16, 32) if size == 32 or max(ends) < 1 << (size - signed))
    if bits >= dtype.bits and not forced:
        return dtype
    return file_format(max(bits, settings.number("activation_bits")), signed=signed)


def invariant_params(dtype: DType) -> QParams:
    """Return the parameters of values that are codes: scale 1, zero point 0, 32 bits at most."""
    if dtype.bits > 32:
        dtype = file_format(32, signed=dtype.kind == "int")
    one = torch.tensor(1.0, dtype=torch.float64)
    return QParams(dtype, one, torch.tensor(0), dtype.min, dtype.max, steps=torch.tensor(1.0))


def _parameters(graph: Graph, node: Node, tensors: Mapping[str, QParams], layers: Layers) -> Parameters:
    spec, settings = layers.specs[node.op], layers.settings[node.name]
    method = str(settings["quantize_method_for_activation"])
    family = spec.quantization.family
    if method.startswith("per_channel") and family in PER_CHANNEL_REFUSED:
        raise UnsupportedError(
            f"layer {node.name!r}: quantize_method_for_activation={method}: {spec.op} has one scale for its "
            "activations. Write per_tensor_... for it."
        )
    if str(settings["quantize_method_for_weight"]).startswith("per_block") and _weights(spec):
        raise UnsupportedError(
            f"layer {node.name!r}: quantize_method_for_weight={settings['quantize_method_for_weight']}: blocks are for "
            "weights of layers whose activations stay in floating point. Write per_channel_... or per_tensor_..."
        )
    operands = {key: name for key, name in zip(spec.inputs, node.inputs, strict=True) if name is not None}
    given = {key: tensors[name] for key, name in operands.items() if key in spec.activations}
    widest = max(params.bits for params in given.values())
    if family == "concatenation" and widest > WIDEST:
        raise UnsupportedError(
            f"layer {node.name!r}: {spec.op} of codes of {widest} bits is not built here. Leave its inputs real values."
        )
    tabled = bool(settings.values.get(TWO_TABLES))
    scheme = settings.scheme(widest if family in AS_WIDE_AS_INPUTS and not tabled else None)
    constants = {key: _constant(graph, spec, key, operands) for key in operands if key not in given}
    found = {key: weight_ends(spec, node, key, values, settings, layers.platform) for key, values in constants.items()}
    if node.name in layers.rounded:
        found["weight"] = found["weight"] or _extrema(spec, constants["weight"])
        constants["weight"] = layers.rounded[node.name]
    if node.name in layers.learned:
        own = layers.learned[node.name]
        constants["weight"], found["weight"] = own.weights, own.ends
        constants |= {} if own.biases is None else {"bias": own.biases}
    request = Request(
        spec,
        scheme,
        settings.platform(layers.platform, family),
        {key: operand_shape(graph, node, spec, key, name) for key, name in operands.items()},
        cast("Mapping[str, CaseAttr]", node.attrs),
        {key: layers.ranges[name].range for key, name in spec.keys_of(node.outputs)}
        | {key: layers.ranges[stage_of(node.outputs[0], key)].range for key in (STAGES if tabled else ())},
        constants,
        given,
        node.activation,
        node.activation_attrs,
        {key: ends for key, ends in found.items() if ends is not None},
        {key: _arranged(layers.samples[name], spec, key) for key, name in operands.items() if name in layers.samples},
        ("weight",) if node.extra.get(WINOGRAD) is True else (),
    )
    try:
        return BuiltinEngine().quantize(request)
    except GraphError as err:
        raise GraphError(f"layer {node.name!r}: {err}") from None


def stage_of(output: str, stage: str) -> str:
    """Return the name, in statistics and ranges, of an intermediate result of a layer."""
    return f"{output}:{stage}"


def _weights(spec: Spec) -> bool:
    return any(item.role == "weight" for item in spec.inputs.values())


def operator_shape(shape: tuple[int, ...], *, spatial: bool) -> tuple[int, ...]:
    """Return a shape of the file in the operator's order: the channel second."""
    return (shape[0], shape[-1], *shape[1:-1]) if spatial and len(shape) > 2 else shape


def operand_shape(graph: Graph, node: Node, spec: Spec, key: str, name: str) -> tuple[int, ...]:
    """Return the shape of an operand as the operator reads it."""
    shape = operator_shape(graph.tensor(name).shape, spatial=spec.inputs[key].spatial)
    return (*shape[:-2], shape[-1], shape[-2]) if key in node.transposed else shape


def _arranged(values: torch.Tensor, spec: Spec, key: str) -> torch.Tensor:
    return values.movedim(-1, 1).contiguous() if spec.inputs[key].spatial else values


def _constant(graph: Graph, spec: Spec, key: str, operands: Mapping[str, str]) -> torch.Tensor:
    data = graph.tensor(operands[key]).data
    if data is None:
        raise GraphError(f"tensor {operands[key]!r}: {spec.op} takes {key!r} as a constant.")
    return _arranged(data.float(), spec, key)


def weight_ends(
    spec: Spec, node: Node, key: str, values: torch.Tensor, settings: Settings, platform: Platform
) -> Ends | None:
    """Return the range that the weight strategy gives a constant; None if extrema are meant.

    in_ir takes `<constant>_range` of the layer: a pair of numbers, or of lists of one number for each slice.
    """
    strategy, scheme = settings.weight_strategy, settings.scheme()
    untrimmed = settings["trim_infinity_before_statistic"] == UNTRIMMED
    given = node.extra.get(f"{_file_key(spec, key)}_range") if strategy.name == "in_ir" else None
    plain = strategy.name in ("extrema", "mean", "in_ir") and given is None and untrimmed
    if plain or spec.inputs[key].role != "weight" or scheme.weight is None:
        return None
    part = weight_part(scheme.weight, platform, spec.quantization.family)
    wanted, axis = settings.wanted(strategy), spec.inputs[key].channel_axis or 0
    whole, slices = observe(None, values, wanted), observe(None, values, wanted, axis)
    if given is not None:
        low, high = _ends_of_the_ir(f"layer {node.name!r}: {_file_key(spec, key)}_range", given, slices.low.numel())
        whole, slices = whole.with_ends(low.min(), high.max()), slices.with_ends(low, high)
    symmetric = part.symmetry == "symmetric"
    low, high = calibrated(strategy, whole, bits=part.bits, symmetric=symmetric)
    lows, highs = calibrated(strategy, slices, bits=part.bits, symmetric=symmetric)
    return Ends(low, high, lows, highs)


def _ends_of_the_ir(place: str, given: object, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and largest values that the IR gives a constant of *count* slices, one or one for each."""
    ends = given if isinstance(given, tuple) and len(given) == 2 else ()
    rows = [end if isinstance(end, tuple) else (end,) for end in ends]
    if rows and all(len(row) in (1, count) and all(type(item) in (int, float) for item in row) for row in rows):
        low, high = (torch.tensor(row, dtype=torch.float32) for row in rows)
        if bool((low.isfinite() & high.isfinite() & (low <= high)).all()):
            return low, high
    shown = format_loosely(cast("AttrValue", given))[:60]
    raise GraphError(
        f"{place}: got {shown}: must be a pair [smallest,largest] of finite numbers, or of lists of one for each of"
        f" {count} slices."
    )


def _extrema(spec: Spec, values: torch.Tensor) -> Ends:
    """Return the range of a constant's values, widened to contain 0."""
    rows = values.movedim(spec.inputs["weight"].channel_axis or 0, 0).flatten(1)
    low, high = rows.amin(1).clamp(max=0.0), rows.amax(1).clamp(min=0.0)
    return Ends(low.min(), high.max(), low, high)


def _file_key(spec: Spec, key: str) -> str:
    return spec.formats[FORMAT].inputs.get(key, key) if FORMAT in spec.formats else key


def quantized_graph(graph: Graph, layers: Layers, decided: Decided, floats: Mapping[str, DType]) -> Graph:
    """Return the graph of codes, with constants as codes and Compass's names. Layers of *floats* stay float."""
    graph = _without_ranges(graph)
    tensors = dict(graph.tensors)
    nodes = []
    for node in graph.nodes:
        settings = layers.settings[node.name]
        perf = bool(settings["perf_mode_for_lib"])
        if isinstance(node.parameters, LoneLayer):
            changed, made = (
                layers_without_spec.float_layer(graph, node, floats[node.name], perf_mode=perf)
                if node.name in floats
                else layers_without_spec.quantized_layer(graph, node, decided.lone[node.name], perf_mode=perf)
            )
            nodes.append(changed)
            tensors |= {tensor.name: tensor for tensor in made}
            continue
        spec = layers.specs[node.op]
        if node.name in floats:
            changed, made = float_layer(graph, node, floats[node.name], perf_mode=perf)
            made += _float_constants(graph, spec, node, floats[node.name])
            changed = replace(changed, extra=_before_axes(changed.extra, _unit_scales(spec, node)))
        else:
            ready = replace(node, parameters=decided.provided[node.name])
            if SCALED in node.extra:
                changed, made = as_scaled(graph, ready, spec, perf_mode=perf)
                nodes.append(changed)
                tensors |= {tensor.name: tensor for tensor in made}
                continue
            bits = settings.multiplier_bits_of(spec.quantization.family)
            more = BY_WINOGRAD if node.extra.get(WINOGRAD) is True else None
            changed, made = provided_layer(graph, ready, spec, multiplier_bits=bits, perf_mode=perf, more=more)
        nodes.append(changed)
        tensors |= {tensor.name: tensor for tensor in made}
    found = graph.with_(nodes=tuple(nodes), tensors=tensors)
    return _with_sources(found, layers, decided, floats)


def _without_ranges(graph: Graph) -> Graph:
    """Return the graph without the float IR's ranges of real outputs.

    Next to codes they would be read as the ends of the codes.
    """

    def plain(node: Node) -> Node:
        extra = {key: value for key, value in node.extra.items() if key != TOP_RANGE}
        return node if len(extra) == len(node.extra) else replace(node, extra=extra)

    sources = cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ()))
    kept = tuple((position, plain(node), constant) for position, node, constant in sources)
    return graph.with_(nodes=tuple(plain(node) for node in graph.nodes), extra={**graph.extra, SOURCES: kept})


def _float_constants(graph: Graph, spec: Spec, node: Node, dtype: DType) -> list[Tensor]:
    """Return the constants of a layer that stays in 16-bit floating point, in that type except for biases."""
    assert FORMAT in spec.formats
    keys = spec.formats[FORMAT].inputs
    found = []
    for key, name in zip(spec.inputs, node.inputs, strict=True):
        if name is not None and key in keys and keys[key] not in FLOAT_BIASES and dtype.bits < 32:
            tensor = graph.tensor(name)
            assert tensor.data is not None
            found.append(replace(tensor, dtype=dtype, data=tensor.data.to(container(dtype))))
    return found


def _before_axes(extra: Mapping[str, object], added: Mapping[str, object]) -> dict[str, object]:
    """Return the lines that a layer keeps, with *added* before the last, which is that of its axes."""
    return {**{key: value for key, value in extra.items() if key != AXES}, **added, AXES: extra[AXES]}


def _unit_scales(spec: Spec, node: Node) -> dict[str, object]:
    """Return the scale 1 and the zero point 0 that Compass writes for weights and biases of a float layer."""
    assert FORMAT in spec.formats
    keys = spec.formats[FORMAT].inputs
    found: dict[str, object] = {}
    for key, name in zip(spec.inputs, node.inputs, strict=True):
        if name is not None and keys.get(key) in ("weights", "biases"):
            found |= {f"{keys[key]}_scale": 1.0, f"{keys[key]}_zp": 0}
    return found


def _with_sources(graph: Graph, layers: Layers, decided: Decided, floats: Mapping[str, DType]) -> Graph:
    """Return the graph with its Input and Constant layers quantized."""
    sources = []
    tensors = dict(graph.tensors)
    for position, node, constant in cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ())):
        source, values = _source(node, constant, layers, decided, tensors, floats.get(node.name))
        sources.append((position, source, values))
    return graph.with_(tensors=tensors, extra={**graph.extra, SOURCES: tuple(sources)})


def _source(
    node: Node,
    constant: Tensor | None,
    layers: Layers,
    decided: Decided,
    tensors: dict[str, Tensor],
    dtype: DType | None,
) -> tuple[Node, Tensor | None]:
    """Return an Input or Constant layer in its written form, and its constant; its tensor in *tensors* is replaced.

    dtype: of a layer that stays in floating point.
    """
    said: dict[str, AttrValue] = {
        "is_perf_mode": bool(layers.settings[node.name]["perf_mode_for_lib"]),
        "unquantifiable": dtype is not None,
        AXES: ("None",) * len(node.outputs),
    }
    extra = {CONSTANTS: (), **node.extra}
    for name in node.outputs:
        if dtype is not None:
            extra |= {TOP_SCALE: (1.0,), TOP_ZP: (0,)}
            tensors[name] = replace(tensors[name], dtype=dtype)
        elif name in decided.tensors:
            params = filed(decided.tensors[name])
            tensors[name] = replace(tensors[name], dtype=params.dtype, qparams=params)
            if constant is not None and constant.data is not None:
                codes = quantize(constant.data.float(), params, layers.platform.quantizer)
                data = codes.to(container(params.dtype))
                tensors[name] = replace(tensors[name], data=data)
                said |= {"weights_scale": float(scale_of(params)), "weights_zp": -int(params.zero_point)}
                constant = replace(constant, dtype=params.dtype, data=data)
    return replace(node, attrs={**node.attrs, **said}, extra=extra), constant
