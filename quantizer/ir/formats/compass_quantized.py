"""Writes the parameters of a quantize rule as keys of a quantized Compass layer: codes, scales, multipliers, tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch

from quantizer.core.dtypes import DTYPES, DType, integer
from quantizer.core.errors import UnsupportedError
from quantizer.core.families import SEPARATE
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import FORMAT, SLOPES, slopes_of
from quantizer.ir.formats.compass_params import AXES, TOP_SCALE, TOP_ZP, scale_of
from quantizer.ir.formats.compass_tables import LEAST_FRACTION, logarithms, powers
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, container
from quantizer.numerics.fused_activations import SLOPES as STORED_SLOPES
from quantizer.numerics.qparams import Bounds, Constant, Parameters, QParams, Rescale

SHIFT_TYPE = DTYPES["int8"]
FACTOR_TYPE = DTYPES["uint16"]
TABLE_TYPES = {"inverse_root": DTYPES["int16"], "inverse": DTYPES["uint16"]}
"""Our names of the tables that Compass stores as `lut` in a type of their own. Other tables have the output's type."""
WHOLE_TABLES = ("root", "reciprocal", "rounding", "trigonometric")
"""Families whose tables are stored in whole bytes if the output has 12 bits (Compass)."""
NARROW = 8
"""Multipliers of up to this many bits are stored in 8 bits, others in 16."""
RATIO = ("scale_value", "shift_value", "shift_type", "scale_type")
"""The lines of one multiplier in the order of most layers; they come after a layer's other numbers."""
NUMBERS_FIRST = ("scale_value", "shift_value", "scale_type", "shift_type")
SCALE_FIRST = ("scale_value", "scale_type", "shift_value", "shift_type")
SHIFT_FIRST = ("shift_value", "shift_type", "scale_value", "scale_type")
RATIOS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("addition", "subtraction", "comparison", "concatenation", "clamping"), NUMBERS_FIRST),
    "division": SCALE_FIRST,
    **dict.fromkeys(("mean", "sum", "softmax", "log_softmax", "trigonometric", "absolute"), SHIFT_FIRST),
}
"""Families whose layers have these lines in another order (Compass)."""
FUSED_RATIOS: Mapping[tuple[str, str], tuple[str, ...]] = {("rectifier", "relu6"): SHIFT_FIRST}
"""(Family, fused activation) of layers that order them differently: a RELU6 is a rectifier with that bound."""
ALWAYS_LISTS = ("depthwise_convolution",)
"""Families whose multipliers are constants even for a single channel."""


def file_format(bits: int, *, signed: bool) -> DType:
    """Return the format in which a Compass file stores codes of *bits* bits: 4, 8, 12, 16, 32 or 64."""
    return integer(next(size for size in (4, 8, 12, 16, 32, 64) if size >= bits), signed=signed)


def filed(params: QParams) -> QParams:
    """Return *params* with the file's format; the range of codes does not change."""
    return replace(params, dtype=file_format(params.dtype.bits, signed=params.dtype.kind == "int"))


def provided_layer(
    graph: Graph,
    node: Node,
    spec: Spec,
    *,
    multiplier_bits: int,
    perf_mode: bool = True,
    more: Mapping[str, AttrValue] | None = None,
) -> tuple[Node, list[Tensor]]:
    """Return *node* with Compass's numbers in `extra`, and its outputs and constants as codes.

    node: one of our operators, in channels_last order, with `parameters`. *multiplier_bits*: as the layer was
    configured. more: further keys of the layer; they override keys that follow from the operator's attributes.
    """
    provided = cast("Parameters", node.parameters)
    made: list[Tensor] = []
    for key, top in spec.keys_of(node.outputs):
        params = filed(provided.outputs[key])
        made.append(replace(graph.tensor(top), dtype=params.dtype, qparams=params))
    extra: dict[str, object] = {"is_perf_mode": perf_mode, "unquantifiable": False}
    extra |= _numbers(node, spec, provided, multiplier_bits)
    extra |= _fused(graph, node, provided) | dict(more or {})
    for key, name in zip(spec.inputs, node.inputs, strict=True):
        if name is not None and key in provided.constants:
            constant = file_constant(provided, spec, key)
            made.append(_code_tensor(graph.tensor(name), constant, spatial=spec.inputs[key].spatial))
            extra |= _scales(node, _file_key(spec, key), constant.params)
    # keys with this prefix are notes between our modules, which the format does not know
    extra |= {key: value for key, value in provided.extra.items() if not key.startswith("compass.")}
    extra[AXES] = ("None",) * len(node.outputs)
    kept = {key: value for key, value in node.extra.items() if key not in (more or {})}
    return replace(node, extra={**kept, **extra}), made


def scaled_layer(
    graph: Graph, node: Node, spec: Spec, *, perf_mode: bool = True, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Node, list[Tensor]]:
    """Return a fully connected layer with three float32 constants instead of a multiplier, and a real-valued bias.

    node: as in `provided_layer`. shapes: those of `scale1` (units of the input), `scale2` (units of each row's weights)
    and `scale3` (steps of the output). The input's zero point is lost (Compass).
    """
    provided = cast("Parameters", node.parameters)
    params, weight = filed(provided.outputs["y"]), file_constant(provided, spec, "weight")
    made = [
        replace(graph.tensor(node.outputs[0]), dtype=params.dtype, qparams=params),
        _code_tensor(graph.tensor(str(node.inputs[1])), weight, spatial=False),
    ]
    units = {
        "scale1": 1.0 / scale_of(provided.inputs["x"]),
        "scale2": 1.0 / scale_of(weight.params),
        "scale3": scale_of(params),
    }
    extra: dict[str, object] = {"is_perf_mode": perf_mode, "unquantifiable": False}
    extra |= {key: stored(node, key, values.reshape(shapes[key]), DTYPES["float32"]) for key, values in units.items()}
    extra |= _scales(node, _file_key(spec, "weight"), weight.params)
    if node.inputs[2] is not None:
        bias = _file_key(spec, "bias")
        # a bias of real numbers is described as codes of scale 1
        extra |= {f"{bias}_scale": 1.0, f"{bias}_zp": 0}
    extra[AXES] = ("None",) * len(node.outputs)
    return replace(node, extra={**node.extra, **extra}, parameters=None), made


def float_layer(graph: Graph, node: Node, dtype: DType, *, perf_mode: bool = True) -> tuple[Node, list[Tensor]]:
    """Return a layer that stays in floating point, with Compass's keys for it."""
    tensors = [replace(graph.tensor(name), dtype=dtype, qparams=None) for name in node.outputs]
    extra: dict[str, object] = {"is_perf_mode": perf_mode, "unquantifiable": True}
    extra |= {TOP_SCALE: (1.0,) * len(tensors), TOP_ZP: (0,) * len(tensors), AXES: ("None",) * len(tensors)}
    return replace(node, extra={**node.extra, **extra}), tensors


def file_constant(provided: Parameters, spec: Spec, key: str) -> Constant:
    """Return a constant in the file's form: a bias includes the contribution of the input's zero point to the sums."""
    constant, params = provided.constants[key], filed(provided.constants[key].params)
    codes = constant.codes
    if spec.inputs[key].role == "bias" and spec.quantization.family in provided.platform.absorbs_zero_point:
        codes = (codes + absorbed(provided, spec, len(codes))).clamp(params.qmin, params.qmax)
    return Constant(codes, params)


def absorbed(provided: Parameters, spec: Spec, channels: int) -> torch.Tensor:
    """Return a bias in the file less the provided codes: the input zero point's share of the sums."""
    zero = next(iter(provided.inputs.values())).zero_point
    for key, item in spec.inputs.items():
        if item.role == "weight" and key in provided.constants:
            weight = provided.constants[key]
            # sum (x - z) * w = sum x * w - z * sum w: the second term is constant, so the bias can hold it
            return -zero * weight.centred_sums.repeat(channels // len(weight.codes))
    return torch.zeros(channels, dtype=torch.int64)


def _file_key(spec: Spec, key: str) -> str:
    assert FORMAT in spec.formats
    return spec.formats[FORMAT].inputs[key]


def _code_tensor(tensor: Tensor, constant: Constant, *, spatial: bool) -> Tensor:
    codes = constant.codes.movedim(1, -1) if spatial else constant.codes
    dtype = constant.params.dtype
    # the file has no range of codes for a constant: a reader takes that of its type
    params = replace(_single(constant.params), qmin=dtype.min, qmax=dtype.max)
    if params.axis is not None:
        params = replace(params, axis=params.axis % codes.dim())
        if params.axis:
            raise UnsupportedError(
                f"tensor {tensor.name!r}: scales along axis {params.axis}: Compass has them along axis 0."
            )
    return replace(tensor, dtype=dtype, data=codes.to(container(dtype)).contiguous(), qparams=params)


def _single(params: QParams) -> QParams:
    """Return parameters in the form in which a file is read: scale = 1 / step; a single slice becomes per tensor."""
    steps, zero, axis = scale_of(params), params.zero_point, params.axis
    if params.scale.numel() == 1:
        steps, zero, axis = steps.reshape(()), zero.reshape(()), None
    return replace(params, scale=1.0 / steps.double(), zero_point=zero, steps=steps, axis=axis)


def _scales(node: Node, key: str, params: QParams) -> dict[str, object]:
    """Return `<key>_scale` and `<key>_zp`: two numbers, or constants for several scales; a bias has one zero."""
    # the file's zero point has the other sign
    steps, zeros = scale_of(params).reshape(-1), -params.zero_point.reshape(-1)
    if steps.numel() == 1:
        return {f"{key}_scale": float(steps), f"{key}_zp": int(zeros)}
    if key == "biases":
        zeros, kind = torch.zeros(1, dtype=torch.int64), DTYPES["int64"]
    else:
        kind = DTYPES["int32"]
    return {
        f"{key}_scale": stored(node, f"{key}_scale", steps, DTYPES["float32"]),
        f"{key}_zp": stored(node, f"{key}_zp", zeros, kind),
    }


def stored(node: Node, key: str, values: torch.Tensor, dtype: DType) -> Tensor:
    """Return *values* as a constant of the layer's file section."""
    data = values.to(container(dtype)).contiguous()
    return Tensor(f"{node.name}:{key}", tuple(data.shape), dtype, data)


def _numbers(node: Node, spec: Spec, provided: Parameters, multiplier_bits: int) -> dict[str, object]:
    """Return multipliers, shifts, tables and further integers under Compass's names, in its order of lines."""
    found = _unordered(node, spec, provided, multiplier_bits)
    family = spec.quantization.family
    alone = family in ("normalization", "group_normalization") and not provided.constants
    fused = FUSED_RATIOS.get((family, node.activation))
    order = SCALE_FIRST if alone else fused or RATIOS.get(family, RATIO)
    # moved to the end: readers do not care for the order of lines, but the comparison with recorded files does
    ratio = {key: found.pop(key) for key in order if key in found}
    return found | ratio


def _unordered(node: Node, spec: Spec, provided: Parameters, multiplier_bits: int) -> dict[str, object]:
    narrow = DTYPES["uint8" if multiplier_bits <= NARROW else "uint16"]
    found: dict[str, object] = {}
    multiplied = (
        provided.rescale is not None and spec.quantization.family not in provided.platform.ones_complement_outputs
    )
    if multiplied and provided.rescale is not None and provided.rescale.variant == "multiplier_shift":
        found |= _rescale(node, spec, provided, provided.rescale, narrow)
    if "log" in provided.tables:
        return found | _two_tables(node, provided, narrow)
    if spec.quantization.family == "log_softmax":
        return found | _logarithms(node, provided, file_format(multiplier_bits, signed=False))
    for name, table in provided.tables.items():
        if name == "powers":
            # this table is stored as real numbers, not as codes
            found["float_lut"] = stored(node, "float_lut", table.entries * table.unit, DTYPES["float32"])
            continue
        if name == "exp":
            dtype = integer(next(bits for bits in (8, 16, 32) if bits >= table.bits), signed=False)
        else:
            dtype = TABLE_TYPES.get(name) or _table_type(spec, filed(next(iter(provided.outputs.values()))).dtype)
        found["lut"] = stored(node, "lut", table.entries, dtype)
    return found | _named_numbers(node, spec, provided, narrow)


def _table_type(spec: Spec, output: DType) -> DType:
    """Return the type of a table's entries: the output's, in some families widened to 8, 16 or 32 bits."""
    if spec.quantization.family not in WHOLE_TABLES:
        return output
    return integer(next(bits for bits in (8, 16, 32) if bits >= output.bits), signed=output.kind == "int")


def _rescale(node: Node, spec: Spec, provided: Parameters, ratio: Rescale, narrow: DType) -> dict[str, object]:
    """Return scale and shift: per channel, for the layer, for a sum and its factors, or for each branch."""
    if ratio.mantissa.dim():
        unified = provided.platform.multiplier.unify_shifts
        own = spec.quantization.family in provided.platform.multiplier.own_shifts
        # multipliers that share one shift differ in size, and are stored in 16 bits (Compass)
        kind = FACTOR_TYPE if unified and not own else narrow
        if ratio.mantissa.numel() == 1 and spec.quantization.family not in ALWAYS_LISTS:
            return _pair(int(ratio.mantissa), int(ratio.shift), kind)
        return {
            "scale": stored(node, "scale", ratio.mantissa, kind),
            "shift": stored(node, "shift", ratio.shift, SHIFT_TYPE),
        }
    mantissa, shift = int(ratio.mantissa), int(ratio.shift)
    if len(ratio.factors) < 2:
        return _pair(mantissa, shift, narrow)
    if spec.quantization.family in SEPARATE:
        return _branches(ratio, narrow)
    # the multiplier of the sum, then one for each operand
    numbers = (mantissa, *(int(factor) for factor in ratio.factors.values()))
    kinds: AttrValue = (FACTOR_TYPE,) * len(numbers)
    return {"scale_value": numbers, "shift_value": shift, "scale_type": kinds, "shift_type": SHIFT_TYPE}


def _pair(mantissa: int, shift: int, kind: DType) -> dict[str, object]:
    return {"scale_value": mantissa, "shift_value": shift, "scale_type": kind, "shift_type": SHIFT_TYPE}


def _branches(ratio: Rescale, narrow: DType) -> dict[str, object]:
    """Return a multiplier and a shift for each operand; empty if all operands are copied."""
    pairs = list(ratio.pairs.values())
    if not pairs:
        return {}
    return {
        "scale_value": tuple(mantissa for mantissa, _ in pairs),
        "shift_value": tuple(shift for _, shift in pairs),
        "scale_type": (narrow,) * len(pairs),
        "shift_type": (SHIFT_TYPE,) * len(pairs),
    }


def _logarithms(node: Node, provided: Parameters, kind: DType) -> dict[str, object]:
    """Return float32 exponentials, the ratio of steps, the output's steps, and a multiplier of 1 as a code."""
    x, y = (scale_of(params) for params in (provided.inputs["x"], provided.outputs["y"]))
    entries = provided.tables["exp"].entries
    found = {"lut_exp": stored(node, "lut_exp", entries, DTYPES["float32"]), "quantize_scale": (float(y / x), float(y))}
    return found | _pair(1, 0, kind)


def _two_tables(node: Node, provided: Parameters, narrow: DType) -> dict[str, object]:
    """Return the integers of a LogSoftmax for targets before X2."""
    kinds = {"exp": DTYPES["uint32"], "log": filed(provided.outputs["y"]).dtype}
    luts = {f"lut_{key}": stored(node, f"lut_{key}", provided.tables[key].entries, kind) for key, kind in kinds.items()}
    return luts | _pair(provided.numbers["multiplier"], provided.numbers["shift"], narrow)


def _fused(graph: Graph, node: Node, provided: Parameters) -> dict[str, object]:
    """Return the quantized numbers of a fused activation; they replace those of the float layer."""
    if isinstance(provided.fused, Bounds):
        return {"clip_min": provided.fused.low, "clip_max": provided.fused.high}
    if provided.fused is None:
        return {}
    slopes = node.extra.get(SLOPES)
    if isinstance(slopes, Tensor):
        assert slopes.data is not None
        rank = len(graph.tensor(str(node.inputs[0])).shape)
        shape = slopes_of(f"layer {node.name!r}", slopes.data, rank).shape
        codes = stored(node, SLOPES, provided.fused.codes.reshape(shape), STORED_SLOPES)
        return {SLOPES: codes, "negative_slope_shift": provided.fused.shift}
    return _slope(int(provided.fused.codes))


def _slope(slope: int) -> dict[str, object]:
    """Return a slope in a type of 8, 16 or 32 bits that holds it."""
    signed = slope < 0
    # n bits with a sign hold down to -2^(n-1), whose complement is 2^(n-1) - 1
    bits = next(size for size in (8, 16, 32) if (~slope if signed else slope) < 1 << (size - signed))
    return {"negative_slope_value": slope, "negative_slope_type": integer(bits, signed=signed)}


def _power_tables(node: Node) -> dict[str, object]:
    """Return the tables of a softmax by powers of two whose exponents have a fraction."""
    return {
        "log2_lut": stored(node, "log2_lut", logarithms(), DTYPES["int16"]),
        "pow2_lut": stored(node, "pow2_lut", powers(), FACTOR_TYPE),
    }


def _named_numbers(node: Node, spec: Spec, provided: Parameters, narrow: DType) -> dict[str, object]:
    """Return the rule's further integers under the names that the layers use."""
    numbers: Mapping[str, int] = provided.numbers
    kinds = numbers.keys()
    unsigned = DTYPES["uint8"]
    if "halves" in kinds:
        return {
            "input_scale_value": numbers["multiplier"],
            "input_shift_value": numbers["shift"],
            "input_scale_type": FACTOR_TYPE,
            "input_shift_type": SHIFT_TYPE,
            "pow2_out_q": numbers["largest_exponent"],
            "adjust_q": numbers["halves"],
            "quantize_method": "FAST_EXP",
            **(_power_tables(node) if numbers["halves"] >= LEAST_FRACTION else {}),
        }
    if "period" in provided.tables:
        return _pair(numbers["multiplier"], numbers["shift"], narrow)
    if "exp" in provided.tables and {"multiplier", "shift"} <= kinds:
        return {"quantize_method": "LUT", **_pair(numbers["multiplier"], numbers["shift"], narrow)}
    if "norm_multiplier" in kinds:
        squares = (
            {"var_shift_value": numbers["variance_shift"], "var_shift_type": unsigned}
            if "variance_shift" in kinds
            else {}
        )
        bits = next(iter(provided.outputs.values())).dtype.bits
        wide = not squares or bits > NARROW
        return {
            **squares,
            "norm_scale_value": numbers["norm_multiplier"],
            "norm_scale_type": unsigned if bits <= NARROW else FACTOR_TYPE,
            "norm_shift_value": numbers["norm_shift"],
            "norm_shift_type": SHIFT_TYPE if wide else unsigned,
        }
    if "slope" in kinds:
        return _slope(numbers["slope"])
    if "relay_bits" in kinds:
        return {"clip_min": numbers["low"], "clip_max": numbers["high"]}
    if "weight_bits" in kinds:
        return {"interp_shift_value": numbers["weight_bits"], "interp_shift_type": SHIFT_TYPE}
    if "value" in kinds:
        given = node.attrs["value"]
        # the code is spelled in the number type of the float layer
        return {"constant_value": float(numbers["value"]) if isinstance(given, float) else numbers["value"]}
    if numbers:
        raise UnsupportedError(f"node {node.name!r}: {spec.op}: no Compass names for {', '.join(numbers)}.")
    return {}
