"""Elements along one axis; each output element has its own index."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("gather_elements")
def reference(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Take along *axis* the element that the index at each place names; a negative index counts from the end."""
    own = indices.long()
    return torch.gather(x, axis, torch.where(own < 0, own + x.shape[axis], own))


@operator("gather_elements")
def quantized(x: Tensor, indices: Tensor, *, parameters: Parameters, axis: int) -> Tensor:
    """Move codes, lines along *axis* one by one; the output shares the input's parameters."""
    # % also turns negative indices into places
    lines, wanted = x.movedim(axis, -1), (indices % x.shape[axis]).movedim(axis, -1)
    rows = lines.reshape(-1, lines.shape[-1])
    places = torch.arange(rows.shape[0])[:, None]
    return rows[places, wanted.reshape(rows.shape[0], -1)].reshape(wanted.shape).movedim(-1, axis)
