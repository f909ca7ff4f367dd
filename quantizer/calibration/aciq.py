"""Analytic clipping (ACIQ): the cheapest clip under an assumed distribution (Banner et al., arXiv 1810.05723)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quantizer.calibration.statistics import Statistics

REFERENCE_BITS = 8
"""Bit widths that are not listed use the number for 8 bits."""


@dataclass(frozen=True)
class Distribution:
    """The clip for each number of bits, in units of the spread, and the measure of spread."""

    factors: Mapping[int, float]
    absolute: bool
    """The spread is the mean absolute deviation (Laplace), else the standard deviation (Gauss)."""


# the clip in units of the spread at which clipping and rounding errors, added, are least; entry i is for i bits
LAPLACE = Distribution(
    dict(
        enumerate(
            (
                1.05,
                1.86,
                2.83,
                3.89,
                5.03,
                6.2,
                7.41,
                8.64,
                9.89,
                11.16,
                12.44,
                13.73,
                15.02,
                16.33,
                17.64,
                18.95,
                20.27,
            )
        )
    ),
    absolute=True,
)
GAUSS = Distribution(
    dict(
        enumerate(
            (1.24, 1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92, 4.21, 4.49, 4.75, 4.99, 5.24, 5.47, 5.69, 5.89), start=1
        )
    ),
    absolute=False,
)


def ranges(found: Statistics, kind: Distribution, bits: int, share: float, *, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Return (smallest, largest), 0-d or per slice, widened to contain 0.

    symmetric: +-(|mean| + share * clip). Otherwise the range has width 2 * clip * share and begins at the larger of
    the averaged smallest value and mean - clip. It may extend beyond the observed values.
    """
    factor = kind.factors.get(bits, kind.factors[REFERENCE_BITS])
    spread = found.absolute_deviation if kind.absolute else found.deviation
    assert spread is not None
    assert found.mean is not None
    clip = factor * spread
    if symmetric:
        end = found.mean.abs() + clip * share
        return -end, end
    low = torch.maximum(found.running_low, found.mean - clip)
    return low, low + 2 * clip * share
