"""Finds the clip whose histogram, coarsened to the codes, has the least Kullback-Leibler divergence."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.calibration.statistics import Statistics
from quantizer.core.errors import GraphError

EPSILON = torch.finfo(torch.float32).eps
WINDOWS_AT_ONCE = 64
"""The number of windows whose divergences are computed together. It bounds memory."""


def ranges(found: Statistics, codes: int, best: int) -> tuple[Tensor, Tensor]:
    """Return (smallest, largest), 0-d or per slice, from histograms of more bins than there are *codes*.

    best: the result is the widest of the *best* clips with the smallest divergence. With fewer bins than codes, it is
    the averaged ends.
    """
    if found.histogram is None:
        raise GraphError("kld needs a histogram, which was not kept. Ask for one when observing.")
    if found.low.dim() == 0:
        return clip(found.histogram, found.running_low, found.running_high, codes, best)
    pairs = [
        clip(counts, low, high, codes, best)
        for counts, low, high in zip(found.histogram, found.running_low, found.running_high, strict=True)
    ]
    return torch.stack([low for low, _ in pairs]), torch.stack([high for _, high in pairs])


def clip(counts: Tensor, low: Tensor, high: Tensor, codes: int, best: int) -> tuple[Tensor, Tensor]:
    """Return the ends of the window of *counts* [bins] over [low, high], widened to contain 0.

    Windows start as wide as there are codes, at the fullest bin, and grow by a bin on each side; the window of
    one-signed data stays at its end of the histogram.
    """
    bins = counts.numel()
    if bins <= codes or codes < 2:
        return low, high
    first, last = _start(counts, float(low), float(high), codes)
    chosen = _widest_of_best(_divergences(counts, first, last, codes), best)
    step = (high - low) / bins
    # a window that grew beyond the histogram ends with it: there are no values outside
    start = low + max(first - chosen, 0) * step
    end = high - (bins - 1 - min(last + chosen, bins - 1)) * step
    return start.clamp(max=0.0), end.clamp(min=0.0)


def _start(counts: Tensor, low: float, high: float, codes: int) -> tuple[int, int]:
    """Return the first and the last bin of the narrowest window."""
    bins, fullest = counts.numel(), int(counts.argmax())
    if low >= 0:
        return 0, codes - 1
    if high <= 0:
        return bins - codes, bins - 1
    # the window starts at the fullest bin, but must not leave the histogram at the nearer end
    if fullest < bins - 1 - fullest:
        first = max(fullest - codes // 2, 0)
        return first, first + codes - 1
    last = min(fullest + codes // 2, bins - 1)
    return last - (codes - 1), last


def _divergences(counts: Tensor, first: int, last: int, codes: int) -> Tensor:
    """Return sum p * log(p / q) for each window, the narrowest first.

    p: the share of each bin; values outside count in the border bins. q: the average of the filled bins of a
    code's group; the last group has the rest of the window.
    """
    bins = counts.numel()
    # the widest window has grown to both ends of the histogram
    count = max(first + 1, bins - last)
    # zeros around the histogram, because the widest windows reach over one of its ends
    padded = torch.nn.functional.pad(counts.float(), (count - (first + 1), count - (bins - last)))
    # values beyond a window are clipped to its end codes, so their share belongs to its border bins
    before = padded.cumsum(0, dtype=torch.float32)
    after = padded.flip(0).cumsum(0, dtype=torch.float32).flip(0)
    found = []
    for windows in torch.arange(count).split(WINDOWS_AT_ONCE):
        # [windows, 1]: where each window begins and ends in the padded histogram
        left = (count - 1 - windows).unsqueeze(1)
        right = padded.numel() - 1 - left
        place = torch.arange(padded.numel())
        share = torch.where((place > left) & (place < right), padded, torch.zeros_like(padded))
        share = torch.where(place == left, before, share)
        share = torch.where(place == right, after, share) / before[-1]
        found.append(_divergence(share, left, right, codes))
    return torch.cat(found)


def _divergence(share: Tensor, left: Tensor, right: Tensor, codes: int) -> Tensor:
    """Return the divergence of windows [left, right] ([n, 1] each) of *share* [n, bins]."""
    bins = share.shape[1]
    # bins for each code, rounded down; the last code gets the rest of the window
    size = (bins - 2 * left) // codes
    widest = bins // codes
    within = torch.arange(widest)
    # [windows, groups, bins of a group]; fewer than `codes` bins lie beyond codes * size, so 2 * codes groups hold all
    source = (left + torch.arange(2 * codes) * size).unsqueeze(2) + within
    held = (within < size.unsqueeze(2)) & (source <= right.unsqueeze(2))
    values = share.gather(1, source.clamp(max=bins - 1).flatten(1)).reshape(source.shape) * held
    sums, filled = values.sum(2), values.count_nonzero(2)
    sums[:, codes - 1] += sums[:, codes:].sum(1)
    filled[:, codes - 1] += filled[:, codes:].sum(1)
    # a code whose bins are all empty would divide by 0
    average = sums[:, :codes] / (filled[:, :codes] + EPSILON)
    group = ((torch.arange(bins) - left) // size).clamp(0, codes - 1)
    coarse, small = average.gather(1, group), share + EPSILON
    # an empty bin adds 0: its ratio is 1
    present = share != 0.0
    ratio = torch.where(present, share, small) / torch.where(present, coarse, small)
    return (share * ratio.log()).sum(1)


def _widest_of_best(divergences: Tensor, best: int) -> int:
    # the place in the tensor is the number of bins by which a window grew on each side
    return int(divergences.argsort(stable=True)[:best].max())
