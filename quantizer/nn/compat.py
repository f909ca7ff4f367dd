"""The grid of nics_fix_pt 0.4.0: clamped to +scale itself, powers of two by a float32 logarithm.

Source: facts about the original's quantiser and its recorded outputs (cases/reference/nics_fix). If the original has no
working code (RANGE_SWEEP, RANGE_MAX_TENPERCENT), the meaning of our default is used on this grid. Its stochastic
rounding adds noise and rounds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantizer.core.errors import FixError
from quantizer.nn.config import FixConfig
from quantizer.nn.methods import QuantizeMethod, RangeMethod
from quantizer.nn.ranges import chosen_scale

SMALLEST = 1e-5
"""The smallest range of the original, except with zero_point."""


@dataclass(frozen=True)
class Ends:
    """Step and ends of the original's grid; *split*: the gradient is halved at an end (with its scales per slice)."""

    step: Tensor
    low: Tensor
    high: Tensor
    split: bool


def compat_scale(data: Tensor, scale: Tensor, config: FixConfig) -> Tensor:
    """Return the scale after a forward, in the original's shape: *scale* itself if FIXED, unless float_scale is set."""
    data = data.detach()
    fixed = config.method == QuantizeMethod.FIXED
    if fixed and not config.float_scale:
        return scale
    if fixed:
        group = None if config.group == "batch" else config.group
        config = replace(config, group=group, range_method=RangeMethod.RANGE_MAX)
    elif config.float_scale and config.range_method != RangeMethod.RANGE_MAX:
        raise FixError(f"compat nics_fix: float_scale can be RANGE_MAX only, got {config.range_method.name}.")
    match config.range_method:
        case RangeMethod.RANGE_MAX if config.float_scale and config.zero_point:
            return torch.stack(_extrema(data, config))
        case RangeMethod.RANGE_MAX if config.float_scale:
            return _largest(data, config)
        case RangeMethod.RANGE_MAX:
            # in float32, as in the original: its rounding decides beside a power of two
            log = torch.log(_largest(data, config))
            return torch.pow(2, torch.ceil(log / torch.tensor([math.log(2.0)], dtype=log.dtype)))
        case RangeMethod.RANGE_3SIGMA:
            reach = 3 * torch.std(data) + data.mean().abs()
            log = torch.log(torch.maximum(reach, torch.full_like(_extrema(data, config)[0], SMALLEST)))
            return torch.pow(2, torch.ceil(log / math.log(2.0)))
        case _:
            return chosen_scale(data, replace(config, zero_point=False, group=None))


def compat_ends(data: Tensor, scale: Tensor, config: FixConfig) -> Ends:
    """Return the grid for *data*: step = range / 2**bits in float32; the ends need not be multiples of it."""
    # the original has scales per slice only for data of four axes or more
    group = config.group if data.dim() >= 4 else None
    auto = config.method == QuantizeMethod.AUTO
    ranged = config.range_method if auto else RangeMethod.RANGE_MAX
    if ranged != RangeMethod.RANGE_MAX or (not auto and config.float_scale):
        group = None
    both = config.zero_point and (config.float_scale or not auto)
    low, high = (scale[0], scale[1]) if both else (-scale, scale)
    span = high - low if both else 2 * scale
    if group is not None:
        shape = (-1, 1, 1, 1) if group == "batch" else (1, -1, 1, 1)
        low, high, span = (t.reshape(shape) for t in (low, high, span))
    elif low.numel() > 1:
        raise FixError(f"compat nics_fix: {low.numel()} scales for data of shape {list(data.shape)}: must be one.")
    step = span / 2.0**config.bitwidth
    return Ends(step if step.dim() else step.reshape(1), low, high, split=group is not None)


def noisy(ratio: Tensor, seed: Tensor | None) -> Tensor:
    """Return *ratio* plus noise from [-1/2, 1/2), not rounded: the original's stochastic rounding leaves the grid.

    The noise is the float32 stream of torch's CPU generator, or of one seeded with *seed*.
    """
    generator = None if seed is None else torch.Generator().manual_seed(int(seed))
    # drawn on the CPU, whose stream is the same everywhere
    drawn = torch.empty(ratio.shape, dtype=torch.float32).uniform_(-0.5, 0.5, generator=generator)
    return ratio + drawn.to(ratio.device)


def _extrema(data: Tensor, config: FixConfig) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest value of each group.

    The original makes "channel" groups by a plain reshape.
    """
    if config.group is None or data.dim() != 4:
        return data.min(), data.max()
    rows = data.reshape(data.shape[0 if config.group == "batch" else 1], -1)
    return rows.amin(1), rows.amax(1)


def _largest(data: Tensor, config: FixConfig) -> Tensor:
    """Return the largest magnitude, or with zero_point the largest value, as the original does."""
    low, high = _extrema(data, config)
    if config.zero_point:
        return high
    return torch.maximum(torch.maximum(high.abs(), low.abs()), torch.full_like(high, SMALLEST))
