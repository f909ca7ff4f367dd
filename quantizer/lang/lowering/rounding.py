"""Rounding, saturation and requantization in operators of ONNX; integers are int64 and exact."""

from __future__ import annotations

import torch

from quantizer.core.dtypes import DTYPES, DType
from quantizer.lang.lowering.emitter import Emitter, Value
from quantizer.numerics.qparams import QParams
from quantizer.numerics.ratio_to_multiplier import fixed_point

INT32 = (-(1 << 31), (1 << 31) - 1)
WORD = 1 << 32
FURTHEST = 62
"""Bits of the largest power of two that int64 holds."""


def quotient(e: Emitter, v: Value, bits: torch.Tensor, mode: str) -> Value:
    """Return int64 `v / 2**bits` rounded in one of Top's modes; negative *bits* shift left, more than 63 count as 63.

    bits: int64 that broadcasts with v. Source of the rule: quantizer.numerics.rounding.shift_right, tpu-mlir's own
    shift.
    """
    right = bits.clamp(0, 63)
    if bool((right > FURTHEST).any()):
        v = _halved(e, v, right > FURTHEST)
    power = torch.ones_like(right) << right.clamp(max=FURTHEST)
    # with fmod=0 the rest has the sign of the divisor: it is never negative, and the quotient is the floor
    rest = e.op("Mod", v, power, fmod=0)
    floor = e.op("Div", e.op("Sub", v, rest), power)
    if bool((bits < 0).any()):
        floor = e.op("Mul", floor, torch.ones_like(bits) << (-bits).clamp(0, 63))
    if mode == "Down" or not bool(right.any()):
        return floor
    # without a shift the rest is 0, which never reaches a half of 1
    half = torch.where(right == 0, torch.ones_like(right), power // 2)
    return e.op("Add", floor, e.cast(_rises(e, v, floor, rest, half, mode), "int64"))


def _halved(e: Emitter, v: Value, where: torch.Tensor) -> Value:
    """Return v halved for a shift by 63. The last bit is set if the half is not a whole number."""
    low = e.op("Mod", v, 2, fmod=0)
    half = e.op("Div", e.op("Sub", v, low), 2)
    # a sticky bit: the lost bit only has to keep the rest of the next shift from looking like 0 or a tie
    marked = e.op("Where", e.op("Equal", e.op("Mod", half, 2, fmod=0), 0), e.op("Add", half, low), half)
    return e.op("Where", where, marked, v)


def _rises(e: Emitter, v: Value, floor: Value, rest: Value, half: torch.Tensor, mode: str) -> Value:
    """Return whether the floor is raised by one."""
    if mode in ("Up", "TowardsZero"):
        inexact = e.op("Greater", rest, 0)
        return inexact if mode == "Up" else e.op("And", inexact, e.op("Less", v, 0))
    above, reached = e.op("Greater", rest, half), e.op("GreaterOrEqual", rest, half)
    if mode == "HalfUp":
        return reached
    if mode == "HalfDown":
        return above
    if mode == "HalfAwayFromZero":
        # the floor of a negative tie lies away from zero already
        return e.op("Or", above, e.op("And", reached, e.op("GreaterOrEqual", v, 0)))
    odd = e.op("Equal", e.op("Mod", floor, 2, fmod=0), 1)
    return e.op("Or", above, e.op("And", reached, odd))


def rounded(e: Emitter, x: Value, mode: str) -> Value:
    """Return floats rounded to whole numbers in one of Top's modes; exact, because x less its floor is exact."""
    if mode in ("Down", "Up", "HalfToEven"):
        return e.op({"Down": "Floor", "Up": "Ceil", "HalfToEven": "Round"}[mode], x)
    floor = e.op("Floor", x)
    if mode == "TowardsZero":
        return e.op("Where", e.op("Less", x, 0.0), e.op("Ceil", x), floor)
    if mode == "HalfAwayFromZero":
        size = e.op("Abs", x)
        return e.op("Mul", e.op("Sign", x), rounded(e, size, "HalfUp"))
    rest = e.op("Sub", x, floor)
    rises = e.op("GreaterOrEqual" if mode == "HalfUp" else "Greater", rest, 0.5)
    return e.op("Add", floor, e.cast(rises, x.dtype))


def saturated(e: Emitter, v: Value, dtype: DType) -> Value:
    """Return int64 values as codes of an integer format, saturated."""
    return e.cast(between(e, v, dtype.min, dtype.max), dtype)


def between(e: Emitter, v: Value, low: int, high: int) -> Value:
    """Return int64 values between two numbers; ONNX Runtime's Clip, Max and Min are wrong for a bound of 2**32 - 1."""
    if high != DTYPES["uint32"].max:
        return e.op("Clip", v, low, high)
    last = e.constant(torch.tensor(high))
    return e.op("Where", e.op("Greater", v, last), last, e.op("Clip", v, low, DTYPES["int64"].max))


def wrapped(e: Emitter, v: Value, dtype: DType) -> Value:
    """Return int64 values wrapped to an integer format: their low bits are kept."""
    count = 1 << dtype.bits
    moved = e.op("Sub", v, dtype.min)
    return e.cast(e.op("Add", e.op("Mod", moved, count, fmod=0), dtype.min), dtype)


def codes(e: Emitter, x: Value, dtype: DType, params: QParams | None, mode: str) -> Value:
    """Return float x on a grid: round(x * float32(1 / scale)) + zero point, saturated; without scale, x itself.

    Source: the cast of tpu-mlir's simulator, which multiplies by the reciprocal.
    """
    x = e.cast(x, "float32")
    zero = torch.zeros((), dtype=torch.int64)
    if params is not None:
        steps = (1.0 / params.along(params.scale, x.rank)).to(torch.float32)
        zero = params.along(params.zero_point, x.rank)
        x = e.op("Mul", x, steps)
    whole = rounded(e, x, mode)
    # beyond every code but within int64: the cast of a larger float, or of infinity, is undefined
    bounded = e.op("Clip", whole, -float(1 << 40), float(1 << 40))
    return saturated(e, _plus(e, e.cast(bounded, "int64"), zero), dtype)


def _plus(e: Emitter, v: Value, number: torch.Tensor) -> Value:
    return e.op("Add", v, number) if bool(number.any()) else v


def scaled(e: Emitter, x: Value, multiplier: torch.Tensor, shift: torch.Tensor, quant_mode: str, mode: str) -> Value:
    """Return int64 x * multiplier * 2**shift: by one shift, or by TFLite's high half of the doubled product.

    shift: a positive one is to the left; in TFLite it comes first and wraps in 32 bits. mode: the rounding of a shift
    to the right. Source: quantizer.numerics.integer_requantize.
    """
    if quant_mode == "MultiplierShift":
        return quotient(e, e.op("Mul", x, multiplier), -shift, mode)
    if bool((shift > 0).any()):
        x = e.cast(wrapped(e, e.op("Mul", x, torch.ones_like(shift) << shift.clamp(0, 63)), DTYPES["int32"]), "int64")
    # the high half of the doubled product is the product shifted right by 31
    ones = torch.tensor(31, dtype=torch.int64)
    high = between(e, quotient(e, e.op("Mul", x, multiplier), ones, "HalfUp"), *INT32)
    return quotient(e, high, (-shift).clamp_min(0), mode)


def requantized(
    e: Emitter,
    x: Value,
    multiplier: torch.Tensor,
    shift: torch.Tensor,
    zero: torch.Tensor,
    dtype: DType,
    quant_mode: str,
    mode: str,
) -> Value:
    """Return centred int64 values, scaled, as codes."""
    return saturated(e, _plus(e, scaled(e, x, multiplier, shift, quant_mode, mode), zero), dtype)


def rescaled(e: Emitter, x: Value, ratio: torch.Tensor) -> Value:
    """Return int64 x times a real ratio, as tpu-mlir lowers it: 31 bits, rounded twice (TFLite_LShift)."""
    # ratio = multiplier / 2**right; the doubled high product divides by 2**31 itself, so 31 places are given back
    multiplier, right = fixed_point(ratio)
    return scaled(e, x, multiplier, 31 - right, "TFLite_LShift", "HalfAwayFromZero")


def as_codes(e: Emitter, x: Value, ratio: torch.Tensor, out: QParams) -> Value:
    """Return int64 x times a real ratio as codes of a result."""
    zero = out.along(out.zero_point, x.rank)
    return saturated(e, _plus(e, rescaled(e, x, ratio), zero), out.dtype)
