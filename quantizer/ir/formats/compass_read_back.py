"""Converts a quantized Compass layer from a file to the parameters of an integer forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch

from quantizer.core.errors import GraphError
from quantizer.core.families import SEPARATE
from quantizer.core.platform_settings import NARROW_BITS
from quantizer.core.platforms import Platform
from quantizer.core.shapes import channel_axis, infer_shapes, variables
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_params import WINOGRAD
from quantizer.ir.formats.compass_quantized import absorbed
from quantizer.ir.formats.compass_tables import LEAST_FRACTION, float_powers, log_softmax_tables
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor
from quantizer.numerics.fused_activations import RELAY_BITS, STAGED
from quantizer.numerics.qparams import Bounds, Constant, Parameters, QParams, Rescale, Slope, Table
from quantizer.numerics.roots import inverse_root_table

ACCUMULATOR_BITS = 48
"""The width of the sums in bits. The platform declares what happens on overflow."""
FLOAT32_BITS = 24
"""The number of bits of a float32 entry."""
INVERSE_UNITS = 65535
"""The entry that stands for 1 in a table of inverses."""
NAMES = {
    "shift_value": "shift",
    "scale_value": "multiplier",
    "var_shift_value": "variance_shift",
    "norm_scale_value": "norm_multiplier",
    "norm_shift_value": "norm_shift",
    "input_scale_value": "multiplier",
    "input_shift_value": "shift",
    "pow2_out_q": "largest_exponent",
    "adjust_q": "halves",
    "interp_shift_value": "weight_bits",
}
ADJUSTED = (0, 1, *range(LEAST_FRACTION, 16))
"""The possible values of adjust_q."""
SLOPE_SHIFT = "negative_slope_shift"
"""Binary places of slopes that do not have as many as the output has bits."""
OUTPUT_STEPS = "scale3"
"""Constant of a fully connected layer that multiplies by float32 numbers."""
FAST_EXP = ("input_scale_value", "input_shift_value", "pow2_out_q", "adjust_q")
"""The attributes of a softmax of powers of two."""


def with_parameters(graph: Graph, specs: Mapping[str, Spec], platform: Platform) -> Graph:
    """Return a native graph whose quantized nodes have the parameters of their layers.

    A layer is quantized if it has `unquantifiable=false`. A layer with three scales instead of a multiplier runs on
    these scales. GraphError if a number is missing or is not as expected.
    """
    nodes = []
    for node in graph.nodes:
        quantized = node.op in specs and node.extra.get("unquantifiable") is False and OUTPUT_STEPS not in node.extra
        nodes.append(_with_parameters(graph, node, specs[node.op], platform) if quantized else node)
    return graph.with_(nodes=tuple(nodes))


def _with_parameters(graph: Graph, node: Node, spec: Spec, platform: Platform) -> Node:
    operands = {key: graph.tensor(name) for key, name in zip(spec.inputs, node.inputs, strict=True) if name is not None}
    inputs = {key: _decided(node, operands[key]) for key in spec.activations if key in operands}
    outputs = {key: _decided(node, graph.tensor(name)) for key, name in spec.keys_of(node.outputs)}
    provided = Parameters(
        platform,
        inputs,
        outputs,
        accumulator_bits=ACCUMULATOR_BITS,
        activation=node.activation,
        tables=_tables(node, spec, inputs, outputs, platform),
        numbers=_numbers(node, spec, platform),
    )
    provided = replace(
        provided, constants=_constants(node, spec, operands, provided), fused=_fused(node, spec, provided)
    )
    node, provided = _restored(node, spec, provided)
    ratio = _rescale(node, spec, provided, operands)
    if ratio is not None and spec.error_model.kind == "mean":
        # a mean of images has its channels at axis 1 in the operator's order
        images = next(iter(spec.inputs.values())).spatial
        ratio = replace(ratio, axis=1 if images else _channel_axis(node, spec, operands))
    return replace(node, parameters=replace(provided, rescale=ratio))


def _restored(node: Node, spec: Spec, provided: Parameters) -> tuple[Node, Parameters]:
    """Return the node with its real attributes, which Compass replaces by integers, and these integers."""
    x, y = next(iter(provided.inputs.values())), next(iter(provided.outputs.values()))
    attrs = node.attrs
    if spec.quantization.family == "leaky_rectifier":
        slope = int(cast("int", attrs["slope"]))
        # Compass stores a slope with as many binary places as the output has bits
        numbers = {"slope": slope, "slope_shift": y.bits}
        real: dict[str, AttrValue] = {"slope": slope * 2.0**-y.bits}
    elif spec.quantization.family == "clamping":
        relay = RELAY_BITS if y.bits <= RELAY_BITS else 0
        ends = {name: int(cast("int", attrs[name])) for name in ("low", "high")}
        numbers = {**ends, "relay_bits": relay}
        real = {name: end * float(y.scale) * 2.0**-relay for name, end in ends.items()}
    elif FORMAT in spec.formats and "constant_value" in spec.formats[FORMAT].attrs.values():
        code = int(cast("int", attrs["value"]))
        numbers, real = {"value": code}, {"value": (code - int(x.zero_point)) * float(x.scale)}
    else:
        return node, provided
    return replace(node, attrs={**attrs, **real}), replace(provided, numbers=numbers)


def _fused(node: Node, spec: Spec, provided: Parameters) -> Slope | Bounds | None:
    """Return the numbers of a fused activation that has arguments."""
    bits, attrs = next(iter(provided.outputs.values())).bits, node.activation_attrs
    if node.activation == "clip":
        low, high = (int(cast("float", attrs[end])) for end in ("low", "high"))
        return Bounds(low, high, RELAY_BITS if bits <= RELAY_BITS else 0)
    if node.activation not in STAGED:
        return None
    slope = attrs["slope"]
    codes = slope.long() if isinstance(slope, torch.Tensor) else torch.tensor([int(cast("float", slope))])
    shift = _number(node, SLOPE_SHIFT) if SLOPE_SHIFT in node.extra else bits
    axis = 1 if next(iter(spec.outputs.values())).spatial else -1
    return Slope(codes, shift, axis, float32=spec.quantization.family in provided.platform.accumulator.float32)


def _decided(node: Node, tensor: Tensor) -> QParams:
    if tensor.qparams is None:
        raise GraphError(f"layer {node.name!r}: tensor {tensor.name!r} has no scale: write layer_top_scale.")
    return tensor.qparams


def _constants(node: Node, spec: Spec, operands: Mapping[str, Tensor], provided: Parameters) -> dict[str, Constant]:
    found: dict[str, Constant] = {}
    for key, tensor in operands.items():
        if tensor.data is not None and key not in spec.activations:
            codes = tensor.data.long()
            codes = codes.movedim(-1, 1) if spec.inputs[key].spatial else codes
            transformed = key == "weight" and node.extra.get(WINOGRAD) is True
            found[key] = Constant(codes, _decided(node, tensor), transformed)
    if spec.quantization.family in provided.platform.absorbs_zero_point:
        known = replace(provided, constants=dict(found))
        for key, constant in found.items():
            if spec.inputs[key].role == "bias":
                # the file's bias holds the input zero point's share of the sums; here the input is centred instead
                codes = constant.codes - absorbed(known, spec, len(constant.codes))
                found[key] = Constant(codes, constant.params)
    return found


def fast_exp(node: Node) -> bool:
    """Return whether a softmax uses powers of two; GraphError if Compass has no such kernel."""
    if node.extra.get("quantize_method") != "FAST_EXP":
        return False
    if _number(node, "adjust_q") not in ADJUSTED:
        raise GraphError(f"layer {node.name!r}: adjust_q={node.extra['adjust_q']}: must be 0, 1, or from 8 to 15.")
    return True


def _number(node: Node, key: str) -> int:
    value = node.extra.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphError(f"layer {node.name!r}: {key}: got {value!r}: must be an integer.")
    return value


def _rescale(node: Node, spec: Spec, provided: Parameters, operands: Mapping[str, Tensor]) -> Rescale | None:
    family = spec.quantization.family
    variant = provided.platform.requantize.get(family, provided.platform.requantize["default"])
    one, none = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0)
    if variant == "area_multiplier":
        return Rescale(variant, one, none)
    if family in provided.platform.ones_complement_outputs:
        return Rescale(variant, one, none, factors=dict.fromkeys(provided.inputs, 1.0))
    scale, shift = node.extra.get("scale"), node.extra.get("shift")
    if isinstance(scale, Tensor) and isinstance(shift, Tensor) and scale.data is not None and shift.data is not None:
        axis = _channel_axis(node, spec, operands)
        return Rescale(variant, scale.data.double(), shift.data.long(), axis=axis)
    values = node.extra.get("scale_value")
    if (
        # these layers rescale by numbers of their own
        {"exp", "period"} & provided.tables.keys()
        or family == "log_softmax"
        or (values is None and family not in SEPARATE)
    ):
        return None
    if family in SEPARATE and len(provided.inputs) > 1:
        return _branches(node, variant, provided)
    axis = _channel_axis(node, spec, operands) if provided.constants else None
    if isinstance(values, tuple):
        numbers = [int(cast("int", value)) for value in values]
        if len(numbers) != 1 + len(provided.inputs):
            raise GraphError(
                f"layer {node.name!r}: scale_value: {len(numbers)} numbers for {len(provided.inputs)} inputs."
            )
        factors = dict(zip(provided.inputs, map(float, numbers[1:]), strict=True))
        mantissa = torch.tensor(float(numbers[0]), dtype=torch.float64)
        return Rescale(variant, mantissa, torch.tensor(_number(node, "shift_value")), factors=factors)
    mantissa = torch.tensor(float(_number(node, "scale_value")), dtype=torch.float64)
    return Rescale(variant, mantissa, torch.tensor(_number(node, "shift_value")), axis=axis)


def _branches(node: Node, variant: str, provided: Parameters) -> Rescale:
    """Return a multiplier for each input of a concatenation; 1 by default."""
    scales, shifts = (node.extra.get(key) for key in ("scale_value", "shift_value"))
    one = torch.tensor(1.0, dtype=torch.float64)
    if not isinstance(scales, tuple) or not isinstance(shifts, tuple):
        factors: dict[str, float] = dict.fromkeys(provided.inputs, 1.0)
        return Rescale(variant, one, torch.tensor(0), factors=factors)  # type: ignore[arg-type]
    if not len(scales) == len(shifts) == len(provided.inputs):
        raise GraphError(
            f"layer {node.name!r}: scale_value and shift_value: one for each of {len(provided.inputs)} inputs."
        )
    pairs = {name: (int(m), int(n)) for name, m, n in zip(provided.inputs, scales, shifts, strict=True)}
    factors = {name: float(mantissa) * 2.0**-shift for name, (mantissa, shift) in pairs.items()}
    return Rescale(variant, one, torch.tensor(0), factors=factors, pairs=pairs)  # type: ignore[arg-type]


def _channel_axis(node: Node, spec: Spec, operands: Mapping[str, Tensor]) -> int | None:
    """Return the axis of the output, in the operator's order, along which channels lie."""
    shapes = {}
    for key, tensor in operands.items():
        shape = tensor.shape
        if spec.inputs[key].spatial and node.order == "channels_last" and len(shape) > 2:
            shape = (shape[0], shape[-1], *shape[1:-1])
        elif key in node.transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        # in the operator's order, for which the shape rules are written
        shapes[key] = shape
    rank = len(next(iter(infer_shapes(spec, shapes, node.attrs).values())))
    return channel_axis(spec, variables(spec, shapes, node.attrs), rank)


def _tables(
    node: Node, spec: Spec, inputs: Mapping[str, QParams], outputs: Mapping[str, QParams], platform: Platform
) -> dict[str, Table]:
    lut = node.extra.get("lut")
    exponentials, logarithms = node.extra.get("lut_exp"), node.extra.get("lut_log")
    if isinstance(exponentials, Tensor) and isinstance(logarithms, Tensor):
        assert exponentials.data is not None
        assert logarithms.data is not None
        x, y = next(iter(inputs.values())), next(iter(outputs.values()))
        return log_softmax_tables(exponentials.data.long(), logarithms.data.long(), x, y)
    if isinstance(exponentials, Tensor) and exponentials.data is not None:
        bits, own = next(iter(inputs.values())).bits, exponentials.data.float()
        # read by x - max(x): the last entry is for 0, the first for the smallest difference of two codes
        return {"exp": Table(own, 1 - (1 << bits), max(1, (1 << bits) // own.numel()), 1.0, FLOAT32_BITS)}
    if not isinstance(lut, Tensor) or lut.data is None:
        return {}
    entries = lut.data.long()
    if "norm_scale_value" in node.extra:
        return {"inverse_root": replace(inverse_root_table(), entries=entries)}
    x, y = next(iter(inputs.values())), next(iter(outputs.values()))
    step = max(1, (1 << x.bits) // entries.numel())
    if spec.quantization.family == "softmax":
        # exp(0) = 1 has the largest entry, whose bits are all 1
        bits = max(int(entries.max()).bit_length(), 1)
        exponentials = Table(entries, 1 - (1 << x.bits), step, 1.0 / ((1 << bits) - 1), bits)
        return {"exp": exponentials} | ({"powers": float_powers()} if "float_lut" in node.extra else {})
    if spec.quantization.family == "division":
        bits = inputs["b"].bits
        return {"inverse": Table(entries, 0, max(1, (1 << bits) // entries.numel()), 1.0 / INVERSE_UNITS, 16)}
    if spec.quantization.family in platform.unit_range_above_8_bits and y.bits > NARROW_BITS:
        return {"period": Table(entries, 0, 1, float(y.scale), y.dtype.bits)}
    first = x.qmin if spec.quantization.family in platform.tables.no_guard_entry else x.first
    return {"lut": Table(entries, first, step, float(y.scale), y.dtype.bits)}


def _numbers(node: Node, spec: Spec, platform: Platform) -> dict[str, int]:
    """Return the integers of a softmax, a normalisation, a leaky rectifier, a clamping or a padding."""
    if spec.quantization.family == "softmax":
        return {
            NAMES[key]: _number(node, key) for key in (FAST_EXP if fast_exp(node) else ("scale_value", "shift_value"))
        }
    wide = spec.quantization.family in platform.unit_range_above_8_bits and "scale_value" in node.extra
    if wide or "lut_log" in node.extra:
        return {NAMES[key]: _number(node, key) for key in ("scale_value", "shift_value")}
    if "interp_shift_value" in node.extra:
        return {"weight_bits": _number(node, "interp_shift_value")}
    if "norm_scale_value" in node.extra:
        keys = ("var_shift_value", "norm_scale_value", "norm_shift_value")
        return {NAMES[key]: _number(node, key) for key in keys if key in node.extra}
    return {}
