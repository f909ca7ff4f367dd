"""The float32 exponential of torch's own vector kernels, restated in IEEE operations only."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.fused import multiply_add

LOG2_E = 1.4426950408889634  # 1 / ln 2
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187045e-06
"""ln 2 as the sum of two float32 numbers. Products of the first with integers below 2**9 are exact."""
POLYNOMIAL = (
    0.00139304355252534151077271,
    0.00833336077630519866943359,
    0.0416664853692054748535156,
    0.166666671633720397949219,
    0.5,
)
LEADING = 0.000198527617612853646278381
LARGEST, SMALLEST = 100.0, -104.0
"""Arguments above the first give infinity, below the second 0."""


def exp(x: Tensor) -> Tensor:
    """Return float32 exponentials: x minus multiples of ln 2, then a polynomial by Horner's rule, fused.

    Source: SLEEF's expf of one unit in the last place (N. Shibata, F. Petrogalli, "SLEEF: a portable vectorized library
    of C standard mathematical functions", 2020), which sigmoid, SiLU and softmax of torch call with AVX2 and AVX-512.
    """
    powers = torch.round(x * _float32(LOG2_E))
    # Cody and Waite: x - n * ln 2 in two steps, so that the rounding error of ln 2 does not count
    rest = multiply_add(powers, _float32(-LN2_HIGH), x)
    rest = multiply_add(powers, _float32(-LN2_LOW), rest)
    total = torch.full_like(x, LEADING)
    for coefficient in POLYNOMIAL:
        total = multiply_add(total, rest, _float32(coefficient))
    total = 1.0 + multiply_add(rest * rest, total, rest)
    # in float64, where no power of two overflows: the result is rounded once, also to a subnormal
    scaled = torch.ldexp(total.double(), powers.clamp(-1000, 1000).double()).float()
    found = torch.where(x < SMALLEST, 0.0, torch.where(x > LARGEST, torch.inf, scaled))
    return torch.where(x.isnan(), x, found)


def _float32(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float32)
