"""Reshape."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("reshape")
def reference(x: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """Keep the elements in row-major order."""
    return x.reshape(shape)


@operator("reshape")
def quantized(x: Tensor, *, parameters: Parameters, shape: tuple[int, ...]) -> Tensor:
    """Move codes; the output shares the input's parameters."""
    return x.contiguous().view(shape)
