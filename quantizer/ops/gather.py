"""Slices along one axis, selected by indices."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("gather")
def reference(x: Tensor, indices: Tensor, *, axis: int, batch_dims: int) -> Tensor:
    """Index x along *axis*; leading paired axes are common to x and the indices."""
    axis %= x.dim()
    own, depth = indices.long(), indices.dim() - batch_dims
    places: list[Tensor | slice] = []
    for place in range(batch_dims):
        along = torch.arange(x.shape[place], device=x.device)
        # each paired axis is indexed by its own place, shaped to broadcast with the indices
        places.append(along.reshape([-1 if i == place else 1 for i in range(batch_dims + depth)]))
    between = x.movedim(axis, batch_dims)
    taken = between[(*places, own)]
    # the indexed axes stand after the paired ones; they belong where *axis* was
    return taken.movedim([batch_dims + i for i in range(depth)], [axis + i for i in range(depth)])


@operator("gather")
def quantized(x: Tensor, indices: Tensor, *, parameters: Parameters, axis: int, batch_dims: int) -> Tensor:
    """Move codes, a slice for each pair of the outer axes; the output shares the input's parameters."""
    axis = axis + x.dim() if axis < 0 else axis
    size, outer = x.shape[axis], x.shape[:batch_dims]
    # the paired axes as one
    rows = x.reshape(outer.numel(), *x.shape[batch_dims:])
    wanted = torch.where(indices < 0, indices + size, indices).reshape(outer.numel(), -1)
    # *axis* has lost the paired axes before it
    found = [row.index_select(axis - batch_dims, own) for row, own in zip(rows, wanted, strict=True)]
    return torch.stack(found).reshape((*x.shape[:axis], *indices.shape[batch_dims:], *x.shape[axis + 1 :]))
