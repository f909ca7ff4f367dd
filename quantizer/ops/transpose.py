"""Axes in another order."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("transpose")
def reference(x: Tensor, *, perm: tuple[int, ...]) -> Tensor:
    """Make axis perm[i] of x axis i of the output."""
    return x.permute(perm)


@operator("transpose")
def quantized(x: Tensor, *, parameters: Parameters, perm: tuple[int, ...]) -> Tensor:
    """Move codes; the output shares the input's parameters."""
    moved = x
    order = list(range(x.dim()))
    for place, axis in enumerate(perm):
        now = order.index(axis)
        # by exchanges of two axes; the reference uses permute, and both must not share a mistake
        moved = moved.transpose(place, now)
        # order[i]: the axis of x that is at place i now
        order[place], order[now] = order[now], order[place]
    return moved.contiguous()
