"""Exact reductions of codes along axes, and the place of their largest or smallest element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def folded(fold: Callable[..., Tensor], x: Tensor, axes: Sequence[int], *, keepdims: bool) -> Tensor:
    """Return *fold* (torch.sum, torch.amax, torch.amin) of *x* along one axis after the other; x if there is none.

    torch would take an empty list of axes as all axes.
    """
    for axis in sorted(axes, reverse=True):  # last axis first, so that removing an axis does not renumber the others
        x = fold(x, dim=axis, keepdim=keepdims)
    return x


def place_of_extreme(
    extreme: Callable[..., Tensor], x: Tensor, axis: int, *, keepdims: bool, select_last: bool
) -> Tensor:
    """Return the first index along *axis* at which *x* equals *extreme* (torch.amax, torch.amin), or the last one."""
    at = x == extreme(x, dim=axis, keepdim=True)
    size = x.shape[axis]
    place = torch.arange(size).reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    if select_last:
        return torch.where(at, place, -1).amax(dim=axis, keepdim=keepdims)
    return torch.where(at, place, size).amin(dim=axis, keepdim=keepdims)
