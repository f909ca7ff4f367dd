"""Quantizes one datum by its configuration: rounds values to a grid, and keeps the scale as state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from quantizer.core.errors import FixError
from quantizer.nn.compat import compat_ends, compat_scale
from quantizer.nn.config import FixConfig, parse
from quantizer.nn.grid import Grid, grid_of, rounded, values
from quantizer.nn.methods import QuantizeMethod, RangeMethod
from quantizer.nn.ranges import chosen_scale, group_axis
from quantizer.nn.straight_through import BetweenEnds, OnGrid, RoundedGradient


def quantize_cfg(
    data: Tensor,
    scale: Tensor | float,
    bitwidth: int | Tensor,
    method: int | Tensor,
    range_method: int | Tensor = RangeMethod.RANGE_MAX,
    stochastic: bool = False,
    float_scale: bool = False,
    zero_point: bool = False,
    group: str | bool | None = None,
    *,
    compat: str | None = None,
    seed: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return *data* on its grid, and the grid's step: `clamp(round(data / step), codes) * step`.

    step = range / 2**bits.

    data: float, any shape. scale: half the range, or with zero_point both ends; AUTO writes its choice into it.
    bitwidth: 1 to 24. method: NONE gives data itself and no step. group: "batch" (axis 0) or "channel" (axis 1): a
    scale for each slice of that axis. Gradients pass inside the range. compat="nics_fix": the original's grid; its
    stochastic rounding adds noise of up to half a step and rounds nothing. FixError for an illegal argument. Source:
    nics_fix_pt's documentation; its formula in facts about the original.
    """
    given = {
        "scale": scale,
        "bitwidth": bitwidth,
        "method": method,
        "range_method": range_method,
        "stochastic": stochastic,
        "float_scale": float_scale,
        "zero_point": zero_point,
        "group": group,
        "compat": compat,
        "seed": seed,
    }
    config, parsed = parse("quantize_cfg", given)
    # the caller's own tensor, so that AUTO can write its choice into it
    state = scale if isinstance(scale, Tensor) else parsed
    return on_grid(data, state, config, seed_of(config) if config.seeded else None)


def quantize(
    data: Tensor, fix_cfg: Mapping[str, Any], fix_grad_cfg: Mapping[str, Any] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return *data* as *fix_cfg* says, with its gradient as *fix_grad_cfg* says, and the step of the data.

    Scales that are tensors are state, as in `quantize_cfg`.
    """
    config, scale = parse("fix_cfg", fix_cfg)
    state = cast("Tensor", fix_cfg["scale"]) if isinstance(fix_cfg.get("scale"), Tensor) else scale
    fixed, step = on_grid(data, state, config, seed_of(config) if config.seeded else None)
    if fix_grad_cfg:
        grad, scale = parse("fix_grad_cfg", fix_grad_cfg, config.compat)
        state = cast("Tensor", fix_grad_cfg["scale"]) if isinstance(fix_grad_cfg.get("scale"), Tensor) else scale
        fixed = with_gradient(fixed, state, grad, seed_of(grad) if grad.seeded else None)
    return fixed, step


def seed_of(config: FixConfig) -> Tensor:
    """Return the seed that *config* names, or one drawn from torch's generator."""
    if config.seed is not None:
        return torch.tensor(config.seed)
    return torch.randint(0, 1 << 62, ())


def on_grid(data: Tensor, scale: Tensor, config: FixConfig, seed: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return *data* rounded to the grid of *config* at *scale*, and the grid's step; AUTO updates *scale*."""
    if config.method == QuantizeMethod.NONE:
        return data, None
    if not data.is_floating_point():
        raise FixError(f"data of {data.dtype}: only floating-point data can be put on a grid.")
    if config.compat is not None:
        found = compat_scale(data, scale, config)
        if found is not scale:
            scale.data = found
        ends = compat_ends(data, found, config)
        return _applied(BetweenEnds, data, ends, config.stochastic, seed), ends.step
    current = scale.detach()
    if config.method == QuantizeMethod.AUTO:
        current = chosen_scale(data, config)
        remember(scale, current)
    grid = grid_for(data, current, config)
    # no gradient will come back, so no mask is needed for it
    if not (torch.is_grad_enabled() and data.requires_grad):
        return values(rounded(data, grid.step, seed), grid).to(data.dtype), grid.step
    # such a range reaches to the largest magnitude: no element lies outside, and every gradient passes
    largest = config.method == QuantizeMethod.AUTO and config.range_method == RangeMethod.RANGE_MAX
    covered = largest and not config.zero_point and not config.stochastic
    return _applied(OnGrid, data, grid, seed, covered), grid.step


def grid_for(data: Tensor, scale: Tensor, config: FixConfig) -> Grid:
    """Return the grid of *scale* for *data*; FixError if their numbers of slices differ."""
    axis = group_axis(data, config)
    count, ends = 1 if axis is None else data.shape[axis], 2 if config.zero_point else 1
    if scale.numel() not in (count * ends, ends):
        wanted = [2, count] if config.zero_point else [count]
        raise FixError(
            f"scale of shape {list(scale.shape)}: data of shape {list(data.shape)} needs {wanted}. "
            "Run a forward with method AUTO first, or write the scale."
        )
    rows = scale.reshape(2, -1) if config.zero_point else scale.reshape(-1)
    # one scale for all slices broadcasts without an axis
    return grid_of(rows, config, rank=data.dim(), axis=axis if scale.numel() > ends else None)


def with_gradient(data: Tensor, scale: Tensor, config: FixConfig, seed: Tensor | None) -> Tensor:
    """Return *data* unchanged, with its gradient rounded to the grid of *config* and the state *scale*."""
    if config.method == QuantizeMethod.NONE:
        return data
    return _applied(RoundedGradient, data, lambda gradient: on_grid(gradient, scale, config, seed)[0])


def remember(scale: Tensor, found: Tensor) -> None:
    """Write *found* into the state *scale*: in place if the shape is the same, else as its new data."""
    with torch.no_grad():
        if scale.shape == found.shape and scale.is_floating_point():
            scale.copy_(found)
        elif scale.numel() == found.numel() == 1 and scale.is_floating_point():
            scale.copy_(found.reshape(scale.shape))
        else:
            scale.data = found.detach().clone()


def _applied(function: type[Function], *operands: object) -> Tensor:
    result: Tensor = function.apply(*operands)
    return result
