"""Observers under PPQ's names: from the batches of one tensor to its range.

`minmax` is the Compass flow's `extrema`; every name of `strategies` is also accepted, with its statistics.
`percentile`, `kl`, `mse` and `isotone` are PPQ's own ideas; where PPQ's code differs from its documentation, we follow
the documentation (each docstring says so).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from quantizer.calibration import histograms
from quantizer.calibration.statistics import BINS, Statistics, Wanted, observe
from quantizer.calibration.strategies import LEGAL, Strategy, calibrated, parse_strategy
from quantizer.core.errors import GraphError

Ends = tuple[Tensor, Tensor]
T = TypeVar("T")
PERCENTILE = 0.9999
KL_BINS, MSE_BINS = 4096, 2048
EXTREMA = Strategy("extrema")
OWN = ("minmax", "percentile", "kl", "mse", "isotone")


@dataclass(frozen=True)
class Codes:
    """The codes for which a range is sought: their ends, and whether the zero point is 0.

    Each slice of *axis* has a range.
    """

    qmin: int
    qmax: int
    symmetric: bool
    axis: int | None = None

    @property
    def bits(self) -> int:
        """Bits that the codes need."""
        return (self.qmax - self.qmin).bit_length()

    @property
    def reach(self) -> int:
        """Steps from 0 to the end of a range whose zero point is 0."""
        return min(-self.qmin, self.qmax) if self.qmin < 0 else self.qmax


@dataclass
class Observer(ABC):
    """Observes every batch of one tensor, in as many passes as it needs, and then returns its range."""

    codes: Codes
    passes: int = 1

    @abstractmethod
    def observe(self, batch: Tensor, number: int = 0) -> None:
        """See one batch in pass *number*, from 0 on."""

    @abstractmethod
    def ends(self) -> Ends:
        """Return the smallest and the largest value, 0-d or one for each slice; GraphError before the first batch."""


@dataclass
class MinMax(Observer):
    """The smallest and the largest value of all batches."""

    found: Ends | None = None

    def observe(self, batch: Tensor, number: int = 0) -> None:  # noqa: ARG002 - this estimator needs one pass
        """See one batch."""
        if not batch.numel():
            raise GraphError(
                f"batch of shape {list(batch.shape)}: a range needs at least one value. Leave the batch out."
            )
        axis = self.codes.axis
        values = batch.detach()
        low, high = values.aminmax() if axis is None else values.movedim(axis, 0).flatten(1).aminmax(dim=1)
        # NaN anywhere in the batch reaches both ends
        if not bool((torch.isfinite(low) & torch.isfinite(high)).all()):
            raise GraphError(f"batch of shape {list(batch.shape)}: NaN and infinities have no place in a range.")
        self.found = (
            (low, high)
            if self.found is None
            else (torch.minimum(self.found[0], low), torch.maximum(self.found[1], high))
        )

    def ends(self) -> Ends:
        """Return the range."""
        return _seen(self.found)


@dataclass
class ByStatistics(Observer):
    """A calibration strategy that the Compass flow also has."""

    strategy: Strategy = EXTREMA
    found: Statistics | None = None

    def observe(self, batch: Tensor, number: int = 0) -> None:  # noqa: ARG002 - this estimator needs one pass
        """See one batch."""
        wanted = Wanted(moments=self.strategy.moments, bins=BINS if self.strategy.histogram else None)
        self.found = observe(self.found, batch, wanted, self.codes.axis)

    def ends(self) -> Ends:
        """Return the range."""
        return calibrated(self.strategy, _seen(self.found), bits=self.codes.bits, symmetric=self.codes.symmetric)


@dataclass
class Percentile(Observer):
    """The mean over batches of the value that a share of 0.9999 of a batch does not exceed, at both ends.

    It clips some of the values that it saw. Source: PPQ's TorchPercentileObserver.
    """

    lows: list[Tensor] = field(default_factory=list)
    highs: list[Tensor] = field(default_factory=list)

    def observe(self, batch: Tensor, number: int = 0) -> None:  # noqa: ARG002 - this estimator needs one pass
        """See one batch."""
        values = _flat(batch)
        # kthvalue counts from 1; the lower end is the same place counted from the largest value
        place = math.ceil(PERCENTILE * values.numel())
        self.highs.append(values.kthvalue(place).values)
        self.lows.append(values.kthvalue(values.numel() + 1 - place).values)

    def ends(self) -> Ends:
        """Return the range."""
        _seen(self.lows or None)
        return torch.stack(self.lows).double().mean(), torch.stack(self.highs).double().mean()


@dataclass
class ByHistogram(Observer):
    """Searches the best ends on a histogram of all batches, which spans the extrema found in a first pass."""

    passes: int = 2
    bins: int = MSE_BINS
    search: Callable[[Tensor, float, float, Codes], tuple[float, float]] = histograms.least_square
    size: bool = False
    """Whether the histogram is of absolute values, from 0 to the largest."""
    low: float = math.inf
    high: float = -math.inf
    counts: Tensor | None = None

    def observe(self, batch: Tensor, number: int = 0) -> None:
        """See one batch."""
        values = _flat(batch)
        values = values.abs() if self.size else values
        if number == 0:
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
            return
        # histc takes an empty span as a request for the data's own ends
        low, high = self._span()
        found = torch.histc(values.double(), self.bins, low, high) if high > low else torch.zeros(self.bins).double()
        self.counts = found if self.counts is None else self.counts + found

    def _span(self) -> tuple[float, float]:
        return (0.0, self.high) if self.size else (min(self.low, 0.0), max(self.high, 0.0))

    def ends(self) -> Ends:
        """Return the range."""
        counts, (low, high) = _seen(self.counts), self._span()
        if high > low:
            low, high = self.search(counts, low, high, self.codes)
        return torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)


@dataclass
class Isotone(Observer):
    """The scale under which the two largest values along the last axis most often get different codes.

    The codes of L1 > L2 differ for scales from L2 / (qmax - 0.51), where the smaller is not clipped to the code of the
    larger, up to 2 * (L1 - L2). Of all ends of these intervals, the one that lies in most intervals is chosen. Source:
    PPQ's TorchIsotoneObserver.
    """

    pairs: list[Tensor] = field(default_factory=list)

    def observe(self, batch: Tensor, number: int = 0) -> None:  # noqa: ARG002 - this estimator needs one pass
        """See one batch."""
        if batch.dim() < 1 or batch.shape[-1] < 2:
            raise GraphError(
                f"isotone compares along the last axis: shape {list(batch.shape)} has nothing to compare there."
            )
        _flat(batch)
        self.pairs.append(batch.detach().double().topk(2, dim=-1).values.reshape(-1, 2))

    def ends(self) -> Ends:
        """Return the range."""
        pairs = torch.cat(_seen(self.pairs or None))
        first, second = pairs[:, 0], pairs[:, 1].clamp(min=0)
        # scales; the docstring derives both ends
        low, high = second / (self.codes.reach - 0.51), 2 * (first - second)
        usable = (high > low) & (high > 0)
        end = pairs[:, 0].max().clamp(min=0)
        if bool(usable.any()):
            low, high = low[usable], high[usable]
            candidates = torch.cat([low, high]).unique()
            candidates = candidates[candidates > 0]
            # intervals that contain a candidate: those begun at or before it, less those ended before it
            begun = torch.searchsorted(low.sort().values, candidates, right=True)
            inside = begun - torch.searchsorted(high.sort().values, candidates)
            end = candidates[int(inside.argmax())] * self.codes.reach  # from a scale to the end of its range
        return -end, end


def observer(name: str, codes: Codes) -> Observer:
    """Return a new observer; ValueError for an unknown name, or for one that cannot be used with *codes*."""
    word = name.lower()
    if word == "minmax":
        return MinMax(codes)
    if word not in OWN:
        try:
            return ByStatistics(codes, strategy=parse_strategy(word))
        except ValueError:
            raise ValueError(f"observer {name!r}: must be one of {', '.join(OWN)}, or a strategy: {LEGAL}") from None
    if codes.axis is not None:
        raise ValueError(f"observer {name!r}: one range for the whole tensor: per channel take 'minmax' or a strategy.")
    if word in ("kl", "isotone") and not codes.symmetric:
        raise ValueError(f"observer {name!r}: the zero point must be 0: take a symmetrical policy.")
    if word == "percentile":
        return Percentile(codes)
    if word == "isotone":
        return Isotone(codes)
    if word == "kl":
        return ByHistogram(codes, bins=KL_BINS, search=histograms.least_divergence, size=True)
    return ByHistogram(codes, bins=MSE_BINS, search=histograms.least_square, size=codes.symmetric)


def _flat(batch: Tensor) -> Tensor:
    values = batch.detach().reshape(-1)
    if not values.numel():
        raise GraphError(f"batch of shape {list(batch.shape)}: a range needs at least one value. Leave the batch out.")
    if not bool(torch.isfinite(values).all()):
        raise GraphError(f"batch of shape {list(batch.shape)}: NaN and infinities have no place in a range.")
    return values


def _seen(found: T | None) -> T:
    if found is None:
        raise GraphError("no batch was observed: a range needs at least one. Give calibration data.")
    return found
