"""Results of integer kernels on x86-64 where a shift or a rounded product overflows, which C++ leaves undefined.

Compared with a real system: all codes were equal for sums up to 2**31 (int16 kernels: 2**45) and multipliers from 2**-5
to 2**40.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.requantize import in_8_lanes, round_fixed_point

INT32 = 32
CONVERTED = ("half_away", "q15_half_up")
"""Variants whose rounded product is converted to 32 bits."""
COUNTS = 64
"""64-bit instructions take shift counts modulo this number."""
SHIFTED = ("q31_double", "q31_half_up", "q31_half_up_in_8_lanes")
"""Variants that shift a 32-bit sum to the left if their multiplier is at least 1."""


def as_x86(acc: Tensor, rescale: Rescale, channel_axis: int | None) -> tuple[Tensor, Rescale]:
    """Return sums (int64) and a rescale without left shifts that give the codes of x86-64 kernels, overflow included.

    Sums of these kernels have 32 bits under every scheme. q31_double: counts modulo 32, the sum wraps; q31_half_up:
    as vector instructions, a count of 32 and more gives 0. q15_half_up: the right shift's count modulo 64. If nothing
    overflows, the arguments are returned unchanged.
    """
    if rescale.variant == "q15_half_up":
        return acc, _counted(rescale)
    if rescale.variant not in SHIFTED or not acc.numel():
        return acc, rescale
    # no left shift, and a sum in 32 bits: nothing overflows
    if int(rescale.shift.min()) > 30 and int(acc.abs().max()) < 1 << 31:
        return acc, rescale
    places = (31 - rescale.shift).clamp_min(0)
    if rescale.shift.dim() == 0:
        places = places.reshape(1)
    vanishes = places >= INT32
    # scalar instructions take counts modulo 32; vector instructions give 0 from 32 places on
    scalar = torch.full_like(vanishes, rescale.variant == "q31_double")
    axis = 0 if channel_axis is None else channel_axis % acc.dim()
    if rescale.variant == "q31_half_up_in_8_lanes":
        places, vanishes = (t.expand(acc.shape[axis]) for t in (places, vanishes))
        scalar = torch.arange(acc.shape[axis]) >= in_8_lanes(acc.shape[axis])
    shape = [-1 if place == axis else 1 for place in range(acc.dim())]
    kept = (scalar | ~vanishes).to(torch.int64).reshape(shape)
    held = _wrapped((acc.long() * kept) << (places % INT32).reshape(shape))
    # the sums are shifted left already; only the right shift of the 31-bit multiplier remains
    return held, replace(rescale, shift=rescale.shift.clamp_min(31))


def beyond_int32(codes: Tensor, acc: Tensor, rescale: Rescale, out: QParams, channel_axis: int | None) -> Tensor:
    """Return *codes*; a product beyond int32 becomes what the processor converts it to, plus the zero point.

    half_away: a float64 number becomes the smallest integer; q15_half_up: the low 32 bits of a 64-bit integer are kept.
    """
    shape = [-1 if place == (channel_axis or 0) % acc.dim() else 1 for place in range(acc.dim())]
    mantissa, shift = (t.reshape(shape) if t.dim() else t for t in (rescale.mantissa, rescale.shift))
    value = acc.double() * (mantissa * torch.exp2(-shift.double()))
    # rounding half away takes numbers from these limits on beyond int32
    beyond = (value >= 2.0**31 - 0.5) | (value <= -(2.0**31) - 0.5)
    if not bool(beyond.any()):
        return codes
    if rescale.variant == "half_away":
        kept = torch.tensor(-(1 << 31))
    else:
        kept = _wrapped(round_fixed_point(acc, mantissa.to(torch.int64), shift, rescale.variant))
    return torch.where(beyond, _wrapped(kept + out.zero_point).clamp(out.qmin, out.qmax), codes)


def _counted(rescale: Rescale) -> Rescale:
    """Return a multiplier whose negative shift is taken modulo 64; a shift of 0 becomes 1 with a doubled multiplier."""
    shift = torch.where(rescale.shift < 0, rescale.shift % COUNTS, rescale.shift)
    doubled = (shift == 0).to(torch.int64)
    return replace(rescale, mantissa=rescale.mantissa * (1 + doubled), shift=shift + doubled)


def _wrapped(values: Tensor) -> Tensor:
    """Return int64 *values* wrapped to 32 bits."""
    return (values + (1 << 31)) % (1 << 32) - (1 << 31)
