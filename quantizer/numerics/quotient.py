"""Integer quotients, correctly rounded."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.rounding import round_scalar, round_tensor

TIE_BAND = 2.0**-40  # far above the error of a float64 quotient; few elements are so near a tie


def divide(numerator: Tensor, denominator: Tensor, step: float, rounding: RoundingMode) -> Tensor:
    """Return `numerator / (denominator * step)` rounded once, as int64.

    numerator, denominator: int64, broadcastable, denominator > 0. step: a float, used as an exact number. Elements that
    float64 cannot decide are computed in rationals.
    """
    top, bottom = torch.broadcast_tensors(numerator, denominator)
    # float64 first, because it decides almost all elements; twice a tie is a whole number
    value = top.double() / (bottom.double() * step)
    result = round_tensor(value, rounding).to(torch.int64)
    band = TIE_BAND * value.abs().clamp(min=1.0)
    twice = value * 2
    unsure = (twice - twice.round()).abs() <= 2 * band
    return _decided(result, unsure, top, bottom, 1 / Fraction(step), rounding)


def divide_exactly(numerator: Tensor, denominator: Tensor, ratio: Fraction, rounding: RoundingMode) -> Tensor:
    """Return `numerator * ratio / denominator` rounded once, as int64; shapes are equal, the denominator is positive.

    Elements that float64 cannot decide are decided in rationals.
    """
    value = numerator.double() * float(ratio) / denominator.double()
    result = round_tensor(value, rounding).to(torch.int64)
    band = TIE_BAND * value.abs().clamp(min=1.0)
    twice = value * 2
    unsure = (twice - twice.round()).abs() <= 2 * band
    return _decided(result, unsure, numerator, denominator, ratio, rounding)


def _decided(
    result: Tensor, unsure: Tensor, numerator: Tensor, denominator: Tensor, ratio: Fraction, rounding: RoundingMode
) -> Tensor:
    """Return *result* with the *unsure* elements of `numerator * ratio / denominator` rounded in rationals.

    A numerator of 0 needs no decision, and equal quotients are decided once: data has many zeros and few distinct
    codes.
    """
    asked = unsure & (numerator != 0)
    pairs = [*zip(numerator[asked].tolist(), denominator[asked].tolist(), strict=True)]
    known = {pair: round_scalar(pair[0] * ratio / pair[1], rounding) for pair in dict.fromkeys(pairs)}
    result[asked] = torch.tensor([known[pair] for pair in pairs], dtype=torch.int64)
    return result


def floor_divide(numerator: int, denominator: Tensor) -> Tensor:
    """Return `floor(numerator / denominator)`, int64, denominator > 0."""
    return torch.div(torch.full_like(denominator, numerator), denominator, rounding_mode="floor")
