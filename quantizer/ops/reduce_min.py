"""Smallest element along some axes."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.reductions import folded
from quantizer.ops import operator


@operator("reduce_min")
def reference(x: Tensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Take the smallest element along *axes*, which stay with size 1 if *keepdims*."""
    return x.amin(dim=axes, keepdim=keepdims)


@operator("reduce_min")
def quantized(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Compare codes, one axis after the other: a positive scale keeps their order."""
    return folded(torch.amin, x, axes, keepdims=keepdims)
