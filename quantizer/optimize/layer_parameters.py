"""Chooses the parameters of every layer of a float graph from ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import torch

from quantizer.core.case import AttrValue as CaseAttr
from quantizer.core.case import Range
from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.formats.compass_params import WINOGRAD
from quantizer.ir.formats.compass_quantized import file_format
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.request import Request
from quantizer.numerics.rules import Ends, activation_params
from quantizer.optimize import layers_without_spec
from quantizer.optimize.logarithm_stages import LOGARITHMS, SHARES
from quantizer.optimize.settings import TWO_TABLES, Settings
from quantizer.optimize.weight_ranges import extrema, weight_ends
from quantizer.plugins.layers_without_spec import LoneLayer
from quantizer.runtime.engines.builtin import BuiltinEngine

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
"""Families for which activations with a scale for each channel are an error; other families use one scale instead
(Compass)."""


AS_WIDE_AS_INPUTS = ("concatenation", "log_softmax")
"""Families whose outputs have as many bits as their widest input, regardless of the layer's settings."""
STAGES = (SHARES, LOGARITHMS)
"""The intermediate results of a LogSoftmax with two tables."""
WIDEST = 16
"""The largest number of bits of an activation's codes."""


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
    """Changed constants of one layer, and the ends of its weights."""

    weights: torch.Tensor
    """The weights, with their axes in the operator's order."""
    ends: Ends
    biases: torch.Tensor | None = None


@dataclass(frozen=True)
class Layers:
    """The data from which the parameters of all layers are chosen."""

    specs: Mapping[str, Spec]
    platform: Platform
    settings: Mapping[str, Settings]
    ranges: Mapping[str, Calibrated]
    invariant: frozenset[str] = frozenset()
    """Input and Constant layers whose values are codes."""
    samples: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Float tensors of one calibration batch, for layers of plugins."""
    rounded: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Layer -> weights in the operator's order, on the grid that its rule chose; a method chose the codes, which need
    not be the nearest."""
    learned: Mapping[str, Own] = field(default_factory=dict)
    """Layer -> constants that it learned."""


@dataclass(frozen=True)
class Decided:
    """Parameters of every tensor that a layer produces, and the numbers from each layer's rule."""

    tensors: Mapping[str, QParams]
    provided: Mapping[str, Parameters]
    lone: Mapping[str, LoneLayer] = field(default_factory=dict)
    """The quantized layers that only plugins know."""


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
            raise UnsupportedError(f"layer {node.name!r}: {node.op}: no operator here is that layer.")
        provided[node.name] = parameters = _parameters(graph, node, tensors, layers)
        for key, name in layers.specs[node.op].keys_of(node.outputs):
            tensors[name] = parameters.outputs[key]
    return Decided(tensors, provided, lone)


def source_layers(graph: Graph) -> dict[str, Node]:
    """Return tensor -> its Input or Constant layer, for inputs and for tensors that nodes read."""
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
    """Return the format of a constant of integers, narrowed to 8, 16 or 32 bits if its values permit.

    A narrowed type has at least as many bits as an activation; a signed type stays signed.
    """
    forced = bool(settings["force_dtype_int"])
    signed = dtype.kind == "int" or forced or span.observed_low < 0.0
    # n bits with a sign hold -2^(n-1) to 2^(n-1) - 1, so the low end counts one less
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
    family = spec.quantization.family
    operands = {key: name for key, name in zip(spec.inputs, node.inputs, strict=True) if name is not None}
    given = {key: tensors[name] for key, name in operands.items() if key in spec.activations}
    widest = max(params.bits for params in given.values())
    _check_methods(node, spec, settings, widest)
    # with two tables, intermediate results have ranges of their own, and the output its layer's bits
    tabled = bool(settings.values.get(TWO_TABLES))
    scheme = settings.scheme(widest if family in AS_WIDE_AS_INPUTS and not tabled else None)
    stored = {key: _constant(graph, spec, key, operands) for key in operands if key not in given}
    constants, ends_of = _changed(node, spec, stored, layers)
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
        {key: ends for key, ends in ends_of.items() if ends is not None},
        {key: _arranged(layers.samples[name], spec, key) for key, name in operands.items() if name in layers.samples},
        ("weight",) if node.extra.get(WINOGRAD) is True else (),
    )
    # a quantize rule knows no layer, so its error gets the name here
    try:
        return BuiltinEngine().quantize(request)
    except GraphError as err:
        raise GraphError(f"layer {node.name!r}: {err}") from None


def _check_methods(node: Node, spec: Spec, settings: Settings, widest: int) -> None:
    """Raise UnsupportedError for settings that the operator cannot have, and for codes that are too wide for it."""
    method, of_weights = (str(settings[f"quantize_method_for_{part}"]) for part in ("activation", "weight"))
    family = spec.quantization.family
    if method.startswith("per_channel") and family in PER_CHANNEL_REFUSED:
        raise UnsupportedError(
            f"layer {node.name!r}: quantize_method_for_activation={method}: {spec.op} has one scale for its "
            "activations. Write per_tensor_... for it."
        )
    if of_weights.startswith("per_block") and any(item.role == "weight" for item in spec.inputs.values()):
        raise UnsupportedError(
            f"layer {node.name!r}: quantize_method_for_weight={of_weights}: blocks are for "
            "weights of layers whose activations stay in floating point. Write per_channel_... or per_tensor_..."
        )
    if family == "concatenation" and widest > WIDEST:
        raise UnsupportedError(
            f"layer {node.name!r}: {spec.op} of codes of {widest} bits is not supported. Leave its inputs real values."
        )


def _changed(
    node: Node, spec: Spec, stored: dict[str, torch.Tensor], layers: Layers
) -> tuple[dict[str, torch.Tensor], dict[str, Ends | None]]:
    """Return the constants with what an algorithm rounded or learned in their place, and the ends of their ranges."""
    settings, constants = layers.settings[node.name], dict(stored)
    found = {key: weight_ends(spec, node, key, values, settings, layers.platform) for key, values in stored.items()}
    if node.name in layers.rounded:
        # ends of the weights before rounding: those of the rounded ones would move the grid on which they lie
        found["weight"] = found["weight"] or extrema(spec, constants["weight"])
        constants["weight"] = layers.rounded[node.name]
    if node.name in layers.learned:
        own = layers.learned[node.name]
        constants["weight"], found["weight"] = own.weights, own.ends
        constants |= {} if own.biases is None else {"bias": own.biases}
    return constants, found


def stage_of(output: str, stage: str) -> str:
    """Return the name, in statistics and ranges, of an intermediate result of a layer."""
    return f"{output}:{stage}"


def operator_shape(shape: tuple[int, ...], *, spatial: bool) -> tuple[int, ...]:
    """Return a shape of the file in the operator's order: the channel second."""
    return (shape[0], shape[-1], *shape[1:-1]) if spatial and len(shape) > 2 else shape


def operand_shape(graph: Graph, node: Node, spec: Spec, key: str, name: str) -> tuple[int, ...]:
    """Return the shape of an operand as the operator reads it."""
    shape = operator_shape(graph.tensor(name).shape, spatial=spec.inputs[key].spatial)
    # the file may hold a factor of a matrix product transposed
    return (*shape[:-2], shape[-1], shape[-2]) if key in node.transposed else shape


def _arranged(values: torch.Tensor, spec: Spec, key: str) -> torch.Tensor:
    return values.movedim(-1, 1).contiguous() if spec.inputs[key].spatial else values


def _constant(graph: Graph, spec: Spec, key: str, operands: Mapping[str, str]) -> torch.Tensor:
    data = graph.tensor(operands[key]).data
    if data is None:
        raise GraphError(f"tensor {operands[key]!r}: must be a constant, as operand {key!r} of {spec.op}.")
    return _arranged(data.float(), spec, key)
