"""Cuts a tensor along one axis into several."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator

Numbers = tuple[int, ...]


@operator("split")
def reference(x: Tensor, *, axis: int, sizes: Numbers) -> tuple[Tensor, ...]:
    """Cut along *axis* into tensors of *sizes*, one after the other."""
    return torch.split(x, list(sizes), dim=axis)


@operator("split")
def quantized(x: Tensor, *, parameters: Parameters, axis: int, sizes: Numbers) -> tuple[Tensor, ...]:
    """Move codes; every tensor shares the input's parameters."""
    ends = itertools.accumulate(sizes)
    return tuple(x.narrow(axis, end - size, size).contiguous() for end, size in zip(ends, sizes, strict=True))
