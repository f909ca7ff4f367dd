"""Rounding that gradients pass straight through, and gradients that are rounded themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from quantizer.nn.compat import Ends, noisy
from quantizer.nn.grid import Grid, rounded, values, within

Rounding = Callable[[Tensor], Tensor]


class OnGrid(Function):
    """Forward: the values of the nearest codes. Backward: the gradient inside the range, zero outside it."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, grid: Grid, seed: Tensor | None, covered: bool) -> Tensor:
        """Return values of *grid*, in the type of *data*; *covered*: no element lies outside the range."""
        whole = rounded(data, grid.step, seed)
        # without saved tensors, backward passes the whole gradient
        if not covered:
            ctx.save_for_backward(within(whole, grid))
        return values(whole, grid).to(data.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the masked gradient."""
        if not ctx.saved_tensors:
            return gradient, None, None, None
        (inside,) = ctx.saved_tensors
        return torch.where(inside, gradient, 0.0), None, None, None


class BetweenEnds(Function):
    """The same on the grid of nics_fix_pt: values are clamped, not codes."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, ends: Ends, stochastic: bool, seed: Tensor | None) -> Tensor:
        """Return multiples of the step, clamped to the ends; *stochastic*: noise instead of rounding."""
        whole = noisy(data / ends.step, seed) if stochastic else rounded(data, ends.step)
        found = whole * ends.step
        share = ((found >= ends.low) & (found <= ends.high)).to(data.dtype)
        # at equal operands torch's minimum and maximum give each half of the gradient
        if ends.split:
            share = share - 0.5 * ((found == ends.low) | (found == ends.high)).to(data.dtype)
        ctx.save_for_backward(share, ends.step)
        return torch.minimum(torch.maximum(found, ends.low), ends.high)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient as its chain of operations gives it: through the clamp, times the step, divided by it."""
        share, step = ctx.saved_tensors
        # not simplified: the product and the quotient round, as in the original
        return gradient * share * step / step, None, None, None


class RoundedGradient(Function):
    """Forward: the data, unchanged. Backward: the gradient is rounded."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, rounding: Rounding) -> Tensor:
        """Return *data* unchanged, and keep *rounding* for the gradient."""
        ctx.rounding = rounding
        return data.view_as(data)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient after *rounding*."""
        return ctx.rounding(gradient), None
