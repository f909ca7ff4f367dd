"""Index of the largest element."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.reductions import place_of_extreme
from quantizer.ops import operator


@operator("argmax")
def reference(x: Tensor, *, axis: int, keepdims: bool, select_last: bool) -> Tensor:
    """Return the first index of the largest element, or the last one with select_last."""
    if not select_last:
        return torch.argmax(x, dim=axis, keepdim=keepdims)
    # the last of equals is the first of the reversed axis
    return x.shape[axis] - 1 - torch.argmax(x.flip(axis), dim=axis, keepdim=keepdims)


@operator("argmax")
def quantized(
    x: Tensor,
    *,
    parameters: Parameters,
    axis: int,
    keepdims: bool,
    select_last: bool,
) -> Tensor:
    """Compare codes: a positive scale keeps their order."""
    return place_of_extreme(torch.amax, x, axis, keepdims=keepdims, select_last=select_last)
