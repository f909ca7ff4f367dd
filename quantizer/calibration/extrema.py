"""Range estimator `extrema`: the smallest and the largest value of all batches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from quantizer.core.case import Range
from quantizer.core.errors import GraphError

LARGEST = 2.0**31
"""Observed ends are clamped to +-LARGEST, so that infinities give a finite range (Compass: the range of int32)."""


@dataclass(frozen=True)
class Extrema:
    """Smallest and largest value observed so far, as float32 numbers."""

    low: float = math.inf
    high: float = -math.inf

    def observe(self, batch: Tensor) -> Extrema:
        """Return this estimator after one more batch."""
        low, high = ends(batch)
        return Extrema(min(self.low, float(low)), max(self.high, float(high)))

    @property
    def range(self) -> Range:
        """The range observed so far, widened to contain 0; GraphError before the first batch."""
        return widened(self.low, self.high)


def extrema(batches: Iterable[Tensor]) -> Range:
    """Return the smallest and the largest value of all *batches*, widened to contain 0."""
    estimator = Extrema()
    for batch in batches:
        estimator = estimator.observe(batch)
    return estimator.range


def ends(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest value of one batch: 0-d, float32, clamped to +-LARGEST.

    batch: any shape and type, taken as float32. GraphError if it is empty or holds NaN.
    """
    values = batch.detach().to(torch.float32)
    if values.numel() == 0:
        raise GraphError(f"batch of shape {list(batch.shape)}: a range needs at least one value. Leave the batch out.")
    low, high = values.aminmax()
    # aminmax propagates NaN, so one test of its result finds NaN anywhere in the batch
    if bool(low.isnan()):
        index = values.isnan().nonzero()[0].tolist()
        raise GraphError(
            f"batch of shape {list(batch.shape)}: NaN at {index} has no place in a range. Leave the sample out."
        )
    return low.clamp(-LARGEST, LARGEST), high.clamp(-LARGEST, LARGEST)


def widened(low: float, high: float) -> Range:
    """Return the range that contains *low*, *high* and 0; GraphError if nothing was observed (low > high)."""
    if low > high:
        raise GraphError("no batch was observed: a range needs at least one. Give calibration data.")
    return min(low, 0.0), max(high, 0.0)
