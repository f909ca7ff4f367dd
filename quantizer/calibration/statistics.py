"""Statistics of a tensor over all batches: extrema, moving averages and a moving histogram; values are not kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from quantizer.calibration.extrema import LARGEST
from quantizer.calibration.mean import MOMENTUM
from quantizer.core.errors import GraphError

Trim = tuple[Literal["clip", "second"], float, float]
"""How values beyond two bounds count: clamped to the bounds, or to the outermost values between them."""
UNTRIMMED: Trim = ("clip", -float("inf"), float("inf"))
BINS = 2048


@dataclass(frozen=True)
class Wanted:
    """Which statistics to keep besides the two ends, and the momentum of moving averages."""

    momentum: float = MOMENTUM
    moments: bool = False
    """Mean, standard deviation, mean absolute deviation."""
    bins: int | None = None
    """Bins of the histogram; None: no histogram."""
    trim: Trim = UNTRIMMED


@dataclass(frozen=True)
class Statistics:
    """The statistics of a tensor: float32 numbers, 0-d, or one for each slice along an axis.

    running_*: moving averages `momentum * before + (1 - momentum) * batch`, the first batch taken whole. Deviations are
    unbiased. A histogram spans the ends of its own batch, so that histograms of different spans are averaged (Compass).
    """

    low: Tensor
    high: Tensor
    running_low: Tensor
    running_high: Tensor
    mean: Tensor | None = None
    deviation: Tensor | None = None
    absolute_deviation: Tensor | None = None
    histogram: Tensor | None = None
    """[bins], or [slices, bins]."""
    batches: int = 1

    def with_ends(self, low: Tensor, high: Tensor) -> Statistics:
        """Return a copy with other smallest and largest values."""
        return replace(self, low=low.expand(self.low.shape), high=high.expand(self.high.shape))


def observe(before: Statistics | None, batch: Tensor, wanted: Wanted, axis: int | None = None) -> Statistics:
    """Return the statistics after one more batch (None: it is the first).

    batch: any shape and type, taken as float32. axis: its slices get separate statistics. GraphError if the batch is
    empty or holds NaN. Each operation rounds to float32 once, in Compass's order.
    """
    values = batch.detach().float()
    if values.numel() == 0:
        raise GraphError(f"batch of shape {list(batch.shape)}: a range needs at least one value. Leave the batch out.")
    values = _trimmed(values, wanted.trim)
    low, high = _ends(values, axis)
    if bool(low.isnan().any()):
        raise GraphError(f"batch of shape {list(batch.shape)}: NaN has no place in a range. Leave the sample out.")
    low, high = low.clamp(min=-LARGEST), high.clamp(max=LARGEST)
    # a factor of 0 takes the first batch whole
    momentum = 0.0 if before is None else wanted.momentum

    def moved(field: Callable[[Statistics], Tensor | None], now: Tensor) -> Tensor:
        old = None if before is None else field(before)
        return momentum * (torch.zeros_like(now) if old is None else old) + (1.0 - momentum) * now

    found = Statistics(
        low if before is None else torch.minimum(before.low, low),
        high if before is None else torch.maximum(before.high, high),
        moved(lambda s: s.running_low, low),
        moved(lambda s: s.running_high, high),
        batches=1 if before is None else before.batches + 1,
    )
    if wanted.moments:
        deviation, mean, absolute = _moments(values, axis)
        found = replace(
            found,
            mean=moved(lambda s: s.mean, mean),
            deviation=moved(lambda s: s.deviation, deviation),
            absolute_deviation=moved(lambda s: s.absolute_deviation, absolute),
        )
    if wanted.bins is not None:
        counts = _histogram(values, low, high, wanted.bins, axis)
        found = replace(found, histogram=moved(lambda s: s.histogram, counts))
    return found


def _trimmed(values: Tensor, trim: Trim) -> Tensor:
    method, low, high = trim
    if method == "clip":
        return values.clamp(low, high) if trim != UNTRIMMED else values
    # 0 lies within the bounds, so an outlier that counts as 0 does not move the outermost values
    kept = torch.where((values <= min(low, 0.0)) | (values >= max(high, 0.0)), torch.zeros_like(values), values)
    return torch.clamp(values, kept.min(), kept.max())


def _ends(values: Tensor, axis: int | None) -> tuple[Tensor, Tensor]:
    if axis is None:
        return values.aminmax()
    flat = values.movedim(axis, 0).reshape(values.shape[axis], -1)  # [slices, elements of a slice]
    return flat.aminmax(dim=1)


def _moments(values: Tensor, axis: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return unbiased deviation (1 where there is one value), mean, and mean absolute deviation."""
    if axis is None:
        deviation, mean = _std_mean(values, None)
        absolute = (values - mean).abs().mean()
    else:
        others = [i for i in range(values.dim()) if i != axis % values.dim()]
        # a tensor of one axis: every slice is one value
        if not others:
            return torch.ones_like(values), values, torch.zeros_like(values)
        deviation, mean = _std_mean(values, others)
        absolute = (values - values.mean(dim=others, keepdim=True)).abs().mean(dim=others)
    bound = {"min": -LARGEST, "max": LARGEST}
    deviation = deviation.clamp(**bound).nan_to_num(nan=1.0)
    return deviation, mean.clamp(**bound).nan_to_num(nan=0.0), absolute.clamp(**bound).nan_to_num(nan=0.0)


def _std_mean(values: Tensor, dims: list[int] | None) -> tuple[Tensor, Tensor]:
    """Return the unbiased deviation, NaN of a single value, and the mean."""
    mean = values.mean() if dims is None else values.mean(dim=dims)
    # torch gives NaN as well, with a warning
    if values.numel() == mean.numel():
        return torch.full_like(mean, float("nan")), mean
    return torch.std_mean(values) if dims is None else torch.std_mean(values, dim=dims)


def _histogram(values: Tensor, low: Tensor, high: Tensor, bins: int, axis: int | None) -> Tensor:
    if axis is None:
        return _counts(values, float(low), float(high), bins)
    slices = values.movedim(axis, 0)
    return torch.stack([_counts(s, float(a), float(b), bins) for s, a, b in zip(slices, low, high, strict=True)])


def _counts(values: Tensor, low: float, high: float, bins: int) -> Tensor:
    low, high = max(min(low, LARGEST), -LARGEST), min(max(high, -LARGEST), LARGEST)
    # a constant tensor has no span, and histc takes an empty one as a request for the data's own ends
    if high <= low:
        high = low + abs(low / 2.0) + 1.0
    return values.histc(bins=bins, min=low, max=high)
