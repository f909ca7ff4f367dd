"""Requantization of integers: three modes, seven rounding modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.rounding import shift_right

IntegerMode = Literal["q31_wrapping_left", "q31_wrapping", "integer_multiplier_shift"]

ROUNDINGS: dict[str, RoundingMode] = {
    "half_away_from_zero": "half_away",
    "half_up": "half_up",
    "half_down": "half_down",
    "half_to_even": "half_even",
    "towards_zero": "toward_zero",
    "up": "up",
    "down": "down",
}
"""Names of the rounding modes in the source -> ours."""

Numbers: TypeAlias = "Tensor | int | Sequence[int]"
_INT32 = (-(1 << 31), (1 << 31) - 1)


def requantize_integers(
    x: Tensor,
    multiplier: Numbers,
    shift: Numbers,
    offset: Numbers,
    mode: IntegerMode,
    rounding: RoundingMode,
    qmin: int,
    qmax: int,
    *,
    axis: int = 1,
    zero_point: Numbers = 0,
) -> Tensor:
    """Return int64 codes of integers *x*; a negative *shift* is a right shift, a positive one a left shift.

    Both wrapping modes are one code path in the source: shift left in int32 (wrapping), take the high half of the
    doubled product (half up, saturated), then shift right in *rounding*. integer_multiplier_shift subtracts
    *zero_point*, multiplies in int64 and shifts once; a right shift of more than 63 places acts as one of 63.

    A parameter is one number, a list with a number for each slice along *axis* (1 in the source's simulator), or a
    tensor that broadcasts. GraphError for lists of another length, and for a zero point in a wrapping mode, which
    takes integers that are not codes.
    """
    numbers = [
        _along(x, name, value, axis)
        for name, value in (
            ("multiplier", multiplier),
            ("shift", shift),
            ("offset", offset),
            ("zero_point", zero_point),
        )
    ]
    factor, places, out, zero = numbers
    x = x.to(torch.int64)
    if mode == "integer_multiplier_shift":
        scaled = shift_right((x - zero) * factor, -places, rounding)
    elif bool((zero != 0).any()):
        raise GraphError(f"zero_point={zero_point!r}: {mode} takes integers that are not codes: must be 0.")
    else:
        widened = _wrap_int32(x << places.clamp(0, 63))
        # Both factors fit 32 bits, so int64 holds the product. Only -2**31 times -2**31 makes the clamp act.
        high = shift_right(widened * factor, 31, "half_up").clamp(*_INT32)
        scaled = shift_right(high, (-places).clamp_min(0), rounding)
    return (scaled + out).clamp(qmin, qmax)


def _along(x: Tensor, name: str, value: Numbers, axis: int) -> Tensor:
    """Return *value* as int64 that broadcasts against *x*; a list lies along *axis*."""
    if isinstance(value, int | Tensor):
        return torch.as_tensor(value, dtype=torch.int64)
    found = torch.tensor(list(value), dtype=torch.int64)
    if len(found) == 1:
        return found[0]
    if not -x.dim() <= axis < x.dim() or len(found) != x.shape[axis]:
        raise GraphError(
            f"{name}: {len(found)} numbers along axis {axis} of shape {list(x.shape)}: one for each slice."
        )
    return found.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])


def _wrap_int32(x: Tensor) -> Tensor:
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
