"""TpuLang's requantization of integers: three modes, seven rounding modes (as read from tpu-mlir's source)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from quantizer.core.platforms import RoundingMode
from quantizer.numerics.rounding import shift_right

TpulangMode = Literal["tpulang_tflite_lshift", "tpulang_tflite", "tpulang_multiplier_shift"]

ROUNDINGS: dict[str, RoundingMode] = {
    "half_away_from_zero": "half_away",
    "half_up": "half_up",
    "half_down": "half_down",
    "half_to_even": "half_even",
    "towards_zero": "toward_zero",
    "up": "up",
    "down": "down",
}
"""TpuLang's names of the rounding modes -> ours."""

_INT32 = (-(1 << 31), (1 << 31) - 1)


def requantize_tpulang(
    x: Tensor,
    multiplier: Tensor | int,
    shift: Tensor | int,
    offset: Tensor | int,
    mode: TpulangMode,
    rounding: RoundingMode,
    qmin: int,
    qmax: int,
) -> Tensor:
    """Return int64 codes of centred integers *x*; a negative *shift* is a right shift, a positive one a left shift.

    The two TFLite modes are one code path there: shift left in int32 (wrapping), take the high half of the doubled
    product (half up, saturated), then shift right in *rounding*. MultiplierShift multiplies in int64 and shifts once.
    """
    x = x.to(torch.int64)
    shift = torch.as_tensor(shift, dtype=torch.int64)
    if mode == "tpulang_multiplier_shift":
        scaled = shift_right(x * multiplier, -shift, rounding)
    else:
        widened = _wrap_int32(x << shift.clamp(0, 63))
        high = shift_right(widened * multiplier, 31, "half_up").clamp(*_INT32)
        scaled = shift_right(high, (-shift).clamp_min(0), rounding)
    return (scaled + offset).clamp(qmin, qmax)


def _wrap_int32(x: Tensor) -> Tensor:
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
