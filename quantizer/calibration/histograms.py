"""Searches for the best range of a tensor, on the histogram of its observed values."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

DROPPED = 0.002
"""The share of the first bins that `least_divergence` leaves out. They hold values next to 0, the most frequent
ones."""
EVERY = 8
"""The distance, in bins, between two successive ends that `least_square` tries on one side."""
EVERY_OF_TWO = 64
"""The same distance if both sides are tried together."""
# ranges whose errors are computed together: it bounds the memory of a [ranges, bins] tensor
AT_ONCE = 64


class Grid(Protocol):
    """The codes to which a range will be quantized."""

    @property
    def qmin(self) -> int:
        """Smallest code."""

    @property
    def qmax(self) -> int:
        """Largest code."""

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is 0."""

    @property
    def reach(self) -> int:
        """Steps from 0 to the end of a symmetric range."""


def least_divergence(counts: Tensor, low: float, high: float, codes: Grid) -> tuple[float, float]:
    """Return -+ the end with the least Kullback-Leibler divergence between the clipped histogram and its coarse form.

    counts [bins] over [low, high], low 0. The tried ends are multiples of n bins, n being the number of codes of one
    sign. Values beyond the end are counted in the last bin. Source: PPQ's TorchHistObserver, after TensorRT's 8-bit
    calibration.
    """
    bins, levels = counts.numel(), codes.reach + 1
    kept = counts.double().clone()
    # bins next to 0 are so full that they alone would decide the divergence; PPQ puts 1 into the first bin that stays
    first = int(bins * DROPPED)
    kept[:first], kept[first] = 0.0, 1.0
    best, chosen = float("inf"), bins
    # a multiple of the number of codes, so that each code gets equally many bins
    for end in range(levels, bins + 1, levels):
        share = kept[:end].clone()
        share[-1] += kept[end:].sum()
        groups = kept[:end].reshape(levels, -1)
        # [codes, bins per code]: each filled bin gets the mean of its code's filled bins, and empty bins stay empty
        filled = groups > 0
        mean = groups.sum(1) / filled.sum(1).clamp(min=1)
        coarse = (mean[:, None] * filled).reshape(-1)
        found = _divergence(share, coarse)
        if found < best:
            best, chosen = found, end
    reach = low + (high - low) * chosen / bins
    return -reach, reach


def _divergence(share: Tensor, coarse: Tensor) -> float:
    """Return sum p * log(p / q) of two normalised histograms; infinite if q is 0 where p is not."""
    p, q = share / share.sum(), coarse / coarse.sum().clamp(min=torch.finfo(torch.float64).tiny)
    there = p > 0
    return float((p[there] * (p[there] / q[there]).log()).sum())


def least_square(counts: Tensor, low: float, high: float, codes: Grid) -> tuple[float, float]:
    """Return the ends with the least squared quantization error; each bin counts at its middle.

    counts [bins] over [low, high]: counts of magnitudes for symmetric codes, else of values. The error is computed on
    the codes that the range would really give (PPQ models half of their step).
    """
    bins = counts.numel()
    width = (high - low) / bins
    middle = low + (torch.arange(bins, dtype=torch.float64) + 0.5) * width
    # the zero point is fixed, so one end determines the range; otherwise both ends are searched
    if codes.symmetric:
        ends = torch.arange(EVERY, bins + 1, EVERY, dtype=torch.float64) / bins * max(high, -low)
        starts = -ends if codes.qmin < 0 else torch.zeros_like(ends)
        errors = _errors(middle, counts, ends / codes.reach, torch.zeros_like(ends), codes)
    else:
        tried = torch.arange(0, bins + 1, EVERY_OF_TWO, dtype=torch.float64) * width + low
        pairs = torch.cartesian_prod(tried[tried <= 0], tried[tried >= 0])
        fixed = torch.tensor([[low, high]], dtype=torch.float64)  # the whole span, which the coarse steps may miss
        starts, ends = torch.cat([pairs[pairs[:, 1] > pairs[:, 0]], fixed]).unbind(1)
        scale = (ends - starts) / (codes.qmax - codes.qmin)
        errors = _errors(middle, counts, scale, codes.qmin + torch.round(-starts / scale), codes)
    best = int(errors.argmin())
    return float(starts[best]), float(ends[best])


def _errors(values: Tensor, counts: Tensor, scales: Tensor, zeros: Tensor, codes: Grid) -> Tensor:
    """Return, for each scale and zero point, the sum of squared errors of *values*, weighted by their counts."""
    found = []
    for scale, zero in zip(scales.split(AT_ONCE), zeros.split(AT_ONCE), strict=True):
        # [ranges, 1] against values [bins]
        s, z = scale[:, None], zero[:, None]
        made = ((torch.round(values / s) + z).clamp(codes.qmin, codes.qmax) - z) * s
        found.append((counts.double() * (made - values) ** 2).sum(1))
    return torch.cat(found)
