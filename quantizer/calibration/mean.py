"""Range estimator `mean`: a moving average of the ends of each batch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantizer.calibration.extrema import ends, widened
from quantizer.core.case import Range
from quantizer.core.errors import GraphError

MOMENTUM = 0.9
"""Weight of the earlier batches in the moving average of ranges (Compass: running_statistic_momentum)."""


@dataclass(frozen=True)
class Mean:
    """Moving averages of the smallest and the largest value of a batch, as float32 numbers.

    The first batch is taken whole; each further one moves them by `1 - momentum`. Some of the observed values may lie
    outside the range and are clipped.
    """

    momentum: float = MOMENTUM
    low: float = math.inf
    high: float = -math.inf

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum <= 1.0:
            raise GraphError(f"momentum {self.momentum}: must lie in [0, 1]. Compass's default is {MOMENTUM}.")

    def observe(self, batch: Tensor) -> Mean:
        """Return this estimator after one more batch."""
        low, high = ends(batch)
        # inf > -inf: nothing was observed yet
        if self.low > self.high:
            return replace(self, low=float(low), high=float(high))
        return replace(self, low=self._moved(self.low, low), high=self._moved(self.high, high))

    @property
    def range(self) -> Range:
        """The range averaged so far, widened to contain 0; GraphError before the first batch."""
        return widened(self.low, self.high)

    def _moved(self, before: float, end: Tensor) -> float:
        """Return `momentum * before + (1 - momentum) * end`: three float32 roundings, factors rounded to float32."""
        average = torch.tensor(before, dtype=torch.float32)
        return float(self.momentum * average + (1.0 - self.momentum) * end)


def mean(batches: Iterable[Tensor], momentum: float = MOMENTUM) -> Range:
    """Return the moving average of the ends of each of *batches*, widened to contain 0."""
    estimator = Mean(momentum)
    for batch in batches:
        estimator = estimator.observe(batch)
    return estimator.range
