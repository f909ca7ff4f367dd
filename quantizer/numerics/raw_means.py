"""Means and sums of raw codes (zero point not subtracted); the zero points are corrected after the multiplication.

Every formula was shown on a real system (x86-64) with at least 20,000 elements of random scales and of powers of two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.overflow import as_x86
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import fixed_point
from quantizer.numerics.requantize import round_fixed_point

VECTOR = 16
"""The number of channels in a vector."""


def averaged(sums: Tensor, counts: Tensor, x: QParams, output: QParams) -> Tensor:
    """Return means of raw codes, ties away from zero: AVERAGE_POOL_2D, whose input and output share parameters."""
    # these kernels add the codes as stored, zero point included
    raw = sums + counts * x.zero_point
    # adding or subtracting half the count rounds half away from zero
    means = torch.where(raw > 0, (raw + counts // 2) // counts, -((counts // 2 - raw) // counts))
    return means.clamp(output.qmin, output.qmax)


def mean_in_vectors(sums: Tensor, count: int, x: QParams, output: QParams, axis: int) -> Tensor:
    """Return means of raw codes plus a whole constant for both zero points.

    Full vectors of sixteen channels are rounded twice, half up; the remaining channels once, half away from zero. The
    constant contains the input's zero point, rounded in output codes, so a mean may be off by half a code.
    """
    count_, scale = torch.tensor(float(count)), output.scale.float()
    real = x.scale.float() / (count_ * scale)
    mantissa, shift = fixed_point(real.double())
    moved = float(x.zero_point.float() * x.scale.float() / scale)
    # the conversion to int truncates, so a half with the sign of the number rounds half away
    constant = int(output.zero_point) - int(torch.tensor(moved).float() + (0.5 if moved > 0 else -0.5))
    numbers = Rescale("q31_half_up", mantissa.double(), shift)
    held, numbers = as_x86(sums + count * x.zero_point, numbers, None)
    places = torch.arange(sums.shape[axis]).reshape([-1 if i == axis % sums.dim() else 1 for i in range(sums.dim())])
    whole = places < sums.shape[axis] // VECTOR * VECTOR
    vector, scalar = (
        round_fixed_point(held, mantissa, numbers.shift, variant) for variant in ("q31_half_up", "q31_double")
    )
    return (torch.where(whole, vector, scalar) + constant).clamp(output.qmin, output.qmax)


def reduced_in_float32(sums: Tensor, count: int, factor: float, x: QParams, output: QParams, *, even: bool) -> Tensor:
    """Return codes of raw sums of *count* codes times a float32 *factor*, plus a float32 constant for the zero points.

    even: the constant includes the output's zero point. Otherwise the zero point is added after rounding.
    """
    scale = torch.tensor(factor, dtype=torch.float32)
    scaled = (sums + count * x.zero_point).float() * scale
    if even:
        offset = output.zero_point.float() - (count * x.zero_point).float() * scale
        codes = (scaled + offset).round().long()
    else:
        value = scaled + -x.zero_point.float() * scale * torch.tensor(float(count))
        codes = (value.sign() * (value.abs().double() + 0.5).floor()).long() + output.zero_point
    return codes.clamp(output.qmin, output.qmax)
