"""Removes axes of size 1."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("squeeze")
def reference(x: Tensor, *, axes: tuple[int, ...]) -> Tensor:
    """Drop *axes*, which have size 1."""
    return x.squeeze(axes)


@operator("squeeze")
def quantized(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...]) -> Tensor:
    """Move codes; the output shares the input's parameters."""
    return x.contiguous().view([size for axis, size in enumerate(x.shape) if axis not in axes])
