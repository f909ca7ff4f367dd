"""The real values of codes: step * (code - zero), with two's complement codes of the configured bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quantizer.nn.config import FixConfig
from quantizer.numerics.rounding import round_tensor


@dataclass(frozen=True)
class Grid:
    """`value = step * (code - zero)` for codes in [qmin, qmax]; step and zero broadcast against the data."""

    step: Tensor
    zero: Tensor | None
    """None if every zero point is 0."""
    qmin: int
    qmax: int


def grid_of(scale: Tensor, config: FixConfig, *, rank: int = 0, axis: int | None = None, per_row: bool = False) -> Grid:
    """Return the grid of *scale*: step = range / 2**bits; the zero point is the code nearest to the value 0.

    *rank*, *axis*: those of the data, so that scales per slice broadcast; *per_row*: the data has one row for each
    scale.
    """
    half = 1 << (config.bitwidth - 1)
    qmin, qmax = -half, half - 1
    zero = None
    if config.zero_point:
        # 0 must have a code, so the range contains it
        low, high = scale[0].clamp_max(0.0), scale[1].clamp_min(0.0)
        step = (high - low) * 2.0**-config.bitwidth
        zero = (torch.round(-low / step) + qmin).clamp(qmin, qmax)
    else:
        step = scale * 2.0 ** (1 - config.bitwidth)
    if per_row:
        shape = [-1, 1]
    elif axis is None:
        shape = []
    else:
        shape = [-1 if i == axis else 1 for i in range(rank)]
    return Grid(step.reshape(shape), None if zero is None else zero.reshape(shape), qmin, qmax)


def rounded(data: Tensor, step: Tensor, seed: Tensor | None = None) -> Tensor:
    """Return data / step as whole numbers: ties to even, or stochastic with a *seed*."""
    ratio = data / step
    return round_tensor(ratio, "half_even") if seed is None else round_tensor(ratio, "stochastic", seed=seed)


def values(whole: Tensor, grid: Grid) -> Tensor:
    """Return the values of the nearest codes to *whole* steps, which are overwritten."""
    if grid.zero is None:
        # in place: a further tensor would be as large as the data
        return whole.clamp_(grid.qmin, grid.qmax).mul_(grid.step)
    return whole.clamp_(grid.qmin - grid.zero, grid.qmax - grid.zero).mul_(grid.step)


def within(whole: Tensor, grid: Grid) -> Tensor:
    """Return which of *whole* steps lie in the range.

    The range ends one step above the largest code: it is [-scale, scale], and +scale has no code.
    """
    if grid.zero is None:
        return whole.clamp(grid.qmin, grid.qmax + 1) == whole
    return whole.clamp(grid.qmin - grid.zero, grid.qmax + 1 - grid.zero) == whole
