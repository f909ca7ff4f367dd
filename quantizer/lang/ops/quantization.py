"""Conversions between real numbers and codes, and between codes."""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.core.dtypes import DTYPES
from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import QUANTIZED, Numbers, Tensor

MODES = ("TFLite_LShift", "TFLite", "MultiplierShift")
"""The rounding modes of requant_int, in the order of their numbers."""
DEQUANT_MODES = ("Normal", "TFLite")
INT32 = (-(1 << 31), (1 << 31) - 1)
FURTHEST = 1 << 30
"""For offsets up to this one, saturating to 32 bits before the offset is added does not change the result."""
Integers = int | Sequence[int]


def _per_channel(argument: str, value: object, x: Tensor, axis: int) -> tuple[int, ...]:
    """Return one whole number, or one for each slice of an axis."""
    listed = a.integers(argument, [value] if isinstance(value, int) else value)
    if len(listed) not in (1, x.shape[axis]):
        raise LangError(
            f"{argument} has {len(listed)} numbers: must be one, or one for each of the {x.shape[axis]} slices "
            f"of axis {axis}."
        )
    return listed


def _same_count(**given: tuple[int, ...] | tuple[float, ...]) -> None:
    counts = {len(value) for value in given.values() if len(value) > 1}
    if len(counts) > 1:
        shown = ", ".join(f"{name} has {len(value)}" for name, value in given.items())
        raise LangError(f"{shown} numbers: the counts must be equal.")


def _channel_axis(x: Tensor) -> int:
    return 1 if len(x.shape) > 1 else 0


@operator("quant")
def requant_fp_to_int(
    tensor_i: Tensor,
    scale: Numbers,
    offset: Numbers,
    requant_mode: int,
    out_dtype: str,
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return codes of the grid with this scale: saturate(round(x * float32(1 / scale)) + offset).

    x is multiplied by 1 / scale, as in the original's code; its documentation says scale. requant_mode is 0 or 1 and
    changes nothing. Lists have one number for each slice of axis 1, and then round_mode is not half_up or half_down.
    """
    a.tensor("tensor_i", tensor_i, a.FLOATS)
    a.one_of("requant_mode", requant_mode, (0, 1))
    kind = a.one_of("out_dtype", out_dtype, QUANTIZED)
    listed = [v for v in (scale, offset) if isinstance(v, list | tuple) and len(v) > 1]
    mode = a.rounding("round_mode", round_mode, without=("half_up", "half_down") if listed else ())
    if scale is None:
        raise LangError("scale is None: must be given.")
    for value in listed:
        if len(tensor_i.shape) < 2 or len(value) != tensor_i.shape[1]:
            raise LangError(
                f"{len(value)} parameters for shape {list(tensor_i.shape)}: must be one for each slice of axis 1."
            )
    result = Result(kind, "", scale, 0 if offset is None else offset)
    return get_default_graph().add("top.Cast", [tensor_i], {"round_mode": mode}, result, out_name=out_name)[0]


@operator("quant")
def dequant_int_to_fp(
    tensor_i: Tensor,
    scale: Numbers,
    offset: Numbers,
    out_dtype: str = "float32",
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return (code - offset) * scale in float32, or from 8 bits in float16."""
    a.tensor("tensor_i", tensor_i, QUANTIZED)
    kind = a.one_of("out_dtype", out_dtype, a.FLOATS if tensor_i.dtype in a.CODES else ("float32",))
    mode = a.rounding("round_mode", round_mode, without=("half_up", "half_down") if kind == "float16" else ())
    if scale is None:
        raise LangError("scale is None: must be given.")
    graph = get_default_graph()
    graph.quantize(tensor_i, scale, 0 if offset is None else offset)
    return graph.add("top.Cast", [tensor_i], {"round_mode": mode}, Result(kind), out_name=out_name)[0]


@operator("quant")
def requant_int(
    tensor_i: Tensor,
    mul: Integers,
    shift: Integers,
    offset: Integers,
    requant_mode: int,
    out_dtype: str = "int8",
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
    rq_axis: int = 1,
    fuse_rq_to_matmul: bool = False,
) -> Tensor:
    """Return saturate(x * mul * 2**shift + offset): a negative shift is to the right and rounds in round_mode.

    requant_mode 0 and 1 take the high half of the doubled 32-bit product (half up) before they shift, 2 multiplies in
    int64 and shifts once; only 2 takes a tensor with a zero point, which it subtracts first. mul and shift are one
    number, or one for each slice of rq_axis; offset is the result's zero point, for int32 only 0. An offset that is
    not a code of the result's type is added by a separate operator.
    """
    kinds = ("int32", "int16", *a.CODES)
    a.tensor("tensor_i", tensor_i, kinds)
    mode = MODES[a.integer("requant_mode", requant_mode, 0, 2)]
    if tensor_i.zero_point is not None and requant_mode != 2:
        raise LangError(f"tensor_i has {tensor_i.parameters}: must be requant_mode=2.")
    kind = a.one_of("out_dtype", out_dtype, (*kinds, "uint16"))
    axis = a.axis("rq_axis", rq_axis, len(tensor_i.shape)) if len(tensor_i.shape) > 1 else 0
    multiplier, shifts = _per_channel("mul", mul, tensor_i, axis), _per_channel("shift", shift, tensor_i, axis)
    _same_count(mul=multiplier, shift=shifts)
    for value in multiplier:
        a.integer("mul", value, *INT32)
    for value in shifts:
        a.integer("shift", value, -63, 63)
    attrs: dict[str, AttrValue] = {
        "multiplier": multiplier,
        # Top counts shifts to the right, TpuLang to the left
        "rshift": tuple(-value for value in shifts),
        "quant_mode": mode,
        "round_mode": a.rounding("round_mode", round_mode),
        "rq_axis": axis,
        "fuse_rq": a.boolean("fuse_rq_to_matmul", fuse_rq_to_matmul),
    }
    return _with_offset(tensor_i, attrs, kind, axis, offset, out_name)


def _with_offset(
    x: Tensor, attrs: dict[str, AttrValue], kind: str, axis: int, offset: Integers, out_name: str | None
) -> Tensor:
    """Add the requantization with its offset: as the result's zero point, or by a separate addition in int32."""
    graph, listed = get_default_graph(), _per_channel("offset", offset, x, axis)
    if kind == "int32" and any(listed):
        raise LangError(f"offset={offset!r} with out_dtype='int32': must be 0.")
    zero = None if kind == "int32" else list(listed)
    own = DTYPES[kind]
    if len(listed) != 1 or own.min <= listed[0] <= own.max:
        return graph.add("top.RequantInt", [x], attrs, Result(kind, "", None, zero, axis), out_name=out_name)[0]
    # a zero point cannot hold it, so it is added to the sum in int32
    a.integer("offset", listed[0], -FURTHEST, FURTHEST)
    wide = graph.add("top.RequantInt", [x], attrs, Result("int32"))[0]
    return graph.add("top.AddConst", [wide], {"const_val": float(listed[0])}, Result(kind), out_name=out_name)[0]


@operator("quant")
def dequant_int(
    tensor_i: Tensor,
    mul: Integers,
    shift: Integers,
    offset: Integers,
    lshift: int,
    requant_mode: int,
    out_dtype: str = "int32",
    out_name: str | None = None,
    round_mode: str = "half_up",
) -> Tensor:
    """Return (code - offset) * mul * 2**shift as a wider integer, saturated.

    requant_mode 0: one shift. 1: first the product is shifted left by lshift and divided by 2**31, rounded half up.
    A negative shift is to the right and rounds in round_mode. The original calls offset the zero point of the result,
    but its formula subtracts it from the code; so does this function.
    """
    a.tensor("tensor_i", tensor_i, QUANTIZED)
    kind = a.one_of("out_dtype", out_dtype, ("int8", "int16", "int32"))
    axis = _channel_axis(tensor_i)
    multiplier, shifts = _per_channel("mul", mul, tensor_i, axis), _per_channel("shift", shift, tensor_i, axis)
    _same_count(mul=multiplier, shift=shifts)
    for value in multiplier:
        a.integer("mul", value, *INT32)
    for value in shifts:
        a.integer("shift", value, -63, 63)
    graph = get_default_graph()
    graph.quantize(tensor_i, None, offset)
    attrs: dict[str, AttrValue] = {
        "multiplier": multiplier,
        "shift": shifts,
        "lshift": a.integer("lshift", lshift, 0, 31),
        "quant_mode": DEQUANT_MODES[a.integer("requant_mode", requant_mode, 0, 1)],
        "round_mode": a.rounding("round_mode", round_mode),
    }
    return graph.add("top.DequantInt", [tensor_i], attrs, Result(kind), out_name=out_name)[0]


@operator("quant")
def requant_fp(
    tensor_i: Tensor,
    scale: Numbers,
    offset: Numbers,
    out_dtype: str,
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
    first_round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return saturate(round(float32(x) * scale + offset)), in float32; scale and offset one number or one a channel.

    The result's zero point is the first offset; it has none if that is not a code. half_up is written as down with
    offset + 0.5, half_down as up with offset - 0.5, as the original does.
    """
    a.tensor("tensor_i", tensor_i, ("float32", "float16", "int32", "int16", *a.CODES))
    kind = a.one_of("out_dtype", out_dtype, QUANTIZED)
    scales, offsets = (
        a.numbers(name, list(v) if isinstance(v, list | tuple) else [v])
        for name, v in (("scale", scale), ("offset", offset))
    )
    axis = _channel_axis(tensor_i)
    for name, values in (("scale", scales), ("offset", offsets)):
        if len(values) not in (1, tensor_i.shape[axis]):
            raise LangError(
                f"{name} has {len(values)} numbers: must be one, or one for each of {tensor_i.shape[axis]} slices."
            )
    first = int(offsets[0])
    zero = first if DTYPES[kind].min <= first <= DTYPES[kind].max else None
    mode, moved = {"half_up": ("down", 0.5), "half_down": ("up", -0.5)}.get(round_mode, (round_mode, 0.0))
    attrs: dict[str, AttrValue] = {
        "scale": scales,
        "offset": tuple(value + moved for value in offsets),
        "quant_mode": "MultiplierShift",
        "round_mode": a.rounding("round_mode", mode),
        "first_round_mode": a.rounding("first_round_mode", first_round_mode),
    }
    result = Result(kind, "", None, zero)
    return get_default_graph().add("top.RequantFp", [tensor_i], attrs, result, out_name=out_name)[0]
