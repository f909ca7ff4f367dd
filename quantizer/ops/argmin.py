"""Index of the smallest element."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("argmin")
def reference(x: Tensor, *, axis: int, keepdims: bool, select_last: bool) -> Tensor:
    """Return the first index of the smallest element, or the last one with select_last."""
    if not select_last:
        return torch.argmin(x, dim=axis, keepdim=keepdims)
    return x.shape[axis] - 1 - torch.argmin(x.flip(axis), dim=axis, keepdim=keepdims)


@operator("argmin")
def quantized(
    x: Tensor,
    *,
    parameters: Parameters,
    axis: int,
    keepdims: bool,
    select_last: bool,
) -> Tensor:
    """Compare codes: a positive scale keeps their order."""
    smallest = x.amin(dim=axis, keepdim=True)
    size = x.shape[axis]
    position = torch.arange(size).reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    if select_last:
        return torch.where(x == smallest, position, -1).amax(dim=axis, keepdim=keepdims)
    return torch.where(x == smallest, position, size).amin(dim=axis, keepdim=keepdims)
