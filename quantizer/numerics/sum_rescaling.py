"""Factors and multipliers of fixed-point sums and means."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from quantizer.core.variants import RatioArithmetic, Variant
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import fixed_point, ratio_of_scales, rescale_left_shifted

VARIANTS: tuple[Variant, ...] = (
    "q31_double",
    "q21_half_up",
    "q31_folded",
    "q31_mean_in_16_lanes",
    "mean_of_codes_half_away",
    "f32_mean_of_codes_half_even",
    "f32_mean_of_codes_half_away",
)
FACTOR_PLACES = 20
"""Binary places of the largest factor, which lies in [1, 2)."""


def rescale(
    variant: Variant,
    inputs: Mapping[str, QParams],
    output: QParams,
    places: int,
    count: int,
    ratio: RatioArithmetic = "float32",
) -> Rescale:
    """Return the factors and the multiplier of a sum, of one operand (31 bits of the *ratio*), or of a mean.

    q31_folded: 31 bits over *count* in integers. f32_mean_of_codes_half_even, f32_mean_of_codes_half_away: the float32
    ratio times 1 / count. q31_mean_in_16_lanes and mean_of_codes_half_away need no numbers.
    """
    one, none = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0)
    single = dict.fromkeys(inputs, 1.0)
    match variant:
        case "q31_double" if len(inputs) > 1:
            scales = {name: float(params.scale) for name, params in inputs.items()}
            return rescale_left_shifted(variant, scales, float(output.scale), places)
        case "q31_double":
            (only,) = inputs.values()
            mantissa, shift = fixed_point(ratio_of_scales([only.scale], float(output.scale), ratio))
            return Rescale(variant, mantissa.double(), shift, factors=single)
        case "q21_half_up":
            return _on_one_grid(variant, inputs, output)
        case "q31_folded":
            (only,) = inputs.values()
            mantissa, shift = _folded(only, output, count)
            return Rescale(variant, mantissa.double(), shift, factors=single)
        case "f32_mean_of_codes_half_even" | "f32_mean_of_codes_half_away":
            # the kernel rounds 1 / count to float32 before it multiplies
            share = torch.tensor(1.0) / torch.tensor(float(count))
            ratios = {
                name: float(params.scale.float() / output.scale.float() * share) for name, params in inputs.items()
            }
            return Rescale(variant, one, none, factors=ratios)
        case _:
            return Rescale(variant, one, none, factors=single)


def _on_one_grid(variant: Variant, inputs: Mapping[str, QParams], output: QParams) -> Rescale:
    """Return the factors: the float32 ratios on one grid, on which the largest has 21 bits."""
    ratios = {name: float(params.scale.float() / output.scale.float()) for name, params in inputs.items()}
    shift = FACTOR_PLACES - (math.frexp(max(ratios.values()))[1] - 1)
    factors = {name: float(round(ratio * 2.0**shift)) for name, ratio in ratios.items()}
    return Rescale(variant, torch.tensor(1.0, dtype=torch.float64), torch.tensor(shift), factors=factors)


def _folded(x: QParams, output: QParams, count: int) -> tuple[Tensor, Tensor]:
    """Return the 31-bit multiplier of s_x / s_y, divided by *count* in integers, and its shift."""
    mantissa, shift = fixed_point(x.scale / output.scale)
    # Shifted left first, so that the division keeps the multiplier's bits; the right shift stays below 63 places.
    places = min(count.bit_length() - 1, 32, 62 - int(shift))
    return (mantissa << places) // count, shift + places
