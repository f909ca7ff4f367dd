"""From data to a scale: the four range methods, per tensor or per slice, symmetric or with both ends."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.nn.config import FixConfig
from quantizer.nn.grid import grid_of, rounded, values
from quantizer.nn.methods import RangeMethod

SWEEP = 3
"""The number of ranges that RANGE_SWEEP compares; each is half of the previous one."""
SMALLEST = 2.0**-100
"""The smallest range, so that steps and their products stay normal float32 numbers."""


def chosen_scale(data: Tensor, config: FixConfig) -> Tensor:
    """Return the scale that AUTO gives *data*: [1] or [slices]; with zero_point both ends, [2] or [2, slices].

    Every range contains 0; the scale of all zeros is 1. A power of two is the smallest not below the range, by frexp;
    with zero_point the step is such a power and both ends are multiples of it.
    """
    rows = _rows(data.detach(), config)
    if config.zero_point:
        low, high = _ends(rows, config)
        low, high = low.clamp_max(0.0), high.clamp_min(0.0)
        # all zeros: any range holds them
        high = torch.where(low == high, 1.0, high)
        scale = _aligned(low, high, config) if not config.float_scale else torch.stack([low, high])
    else:
        scale = _magnitude(rows, config)
        scale = torch.where(scale == 0, 1.0, scale.clamp_min(SMALLEST))
        scale = scale if config.float_scale else power_of_two_above(scale)
    if config.range_method == RangeMethod.RANGE_SWEEP:
        scale = _swept(rows, scale, config)
    return scale if group_axis(data, config) is not None or not config.zero_point else scale.reshape(2)


def power_of_two_above(value: Tensor) -> Tensor:
    """Return the smallest power of two not below each positive *value*, exactly."""
    # value = mantissa * 2**e with a mantissa in [1/2, 1), so value / mantissa is 2**e without an error
    mantissa = torch.frexp(value).mantissa
    return torch.where(mantissa == 0.5, value, value / mantissa)


def group_axis(data: Tensor, config: FixConfig) -> int | None:
    """Return the axis of separate scales; None for data with fewer than two axes."""
    if config.group is None or data.dim() < 2:
        return None
    return 0 if config.group == "batch" else 1


def _rows(data: Tensor, config: FixConfig) -> Tensor:
    """Return float32 (or float64) data with one row for each scale."""
    wide = data if data.dtype in (torch.float32, torch.float64) else data.float()
    axis = group_axis(data, config)
    return wide.reshape(1, -1) if axis is None else wide.movedim(axis, 0).reshape(data.shape[axis], -1)


def _magnitude(rows: Tensor, config: FixConfig) -> Tensor:
    match config.range_method:
        case RangeMethod.RANGE_3SIGMA:
            return 3 * _deviation(rows) + rows.mean(1).abs()
        case RangeMethod.RANGE_MAX_TENPERCENT:
            return rows.abs().topk(_tenth(rows), dim=1).values[:, -1]
        case _:
            low, high = _extrema(rows)
            return torch.maximum(-low, high)


def _ends(rows: Tensor, config: FixConfig) -> tuple[Tensor, Tensor]:
    match config.range_method:
        case RangeMethod.RANGE_3SIGMA:
            mean, reach = rows.mean(1), 3 * _deviation(rows)
            return mean - reach, mean + reach
        case RangeMethod.RANGE_MAX_TENPERCENT:
            count = _tenth(rows)
            return -(-rows).topk(count, dim=1).values[:, -1], rows.topk(count, dim=1).values[:, -1]
        case _:
            return _extrema(rows)


def _extrema(rows: Tensor) -> tuple[Tensor, Tensor]:
    low, high = torch.aminmax(rows) if rows.shape[0] == 1 else torch.aminmax(rows, dim=1)
    return low.reshape(-1), high.reshape(-1)


def _deviation(rows: Tensor) -> Tensor:
    return rows.std(1) if rows.shape[1] > 1 else torch.zeros_like(rows[:, 0])


def _tenth(rows: Tensor) -> int:
    return max(1, rows.shape[1] // 10)


def _aligned(low: Tensor, high: Tensor, config: FixConfig) -> Tensor:
    """Return ends that are multiples of a power of two; 2**bits such steps cover the range."""
    step = power_of_two_above(((high - low) * 2.0**-config.bitwidth).clamp_min(SMALLEST))
    # the upper end, first + 2**bits steps, stays above 0
    first = torch.round(low / step).clamp_min(-(2.0**config.bitwidth) + 1)
    return torch.stack([first * step, (first + 2**config.bitwidth) * step])


def _swept(rows: Tensor, scale: Tensor, config: FixConfig) -> Tensor:
    """Return *scale*, its half or its quarter: the one with the least sum of absolute errors, of equals the largest."""
    best, least = scale, torch.full_like(rows[:, 0], torch.inf)
    for halvings in range(SWEEP):
        candidate = scale * 2.0**-halvings
        grid = grid_of(candidate, config, per_row=True)
        error = (values(rounded(rows, grid.step), grid) - rows).abs().sum(1)
        best = torch.where(error < least, candidate, best)
        least = torch.minimum(error, least)
    return best
