"""Images resized: each output element is the nearest input element."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.resize import places
from quantizer.ops import operator

Pair = tuple[int, int]


@operator("resize_nearest")
def reference(x: Tensor, *, size: Pair, mode: str, rounding: str) -> Tensor:
    """For each output element take the nearest element of x [n, c, h, w], by exact positions and *rounding*."""
    for axis, count in zip((2, 3), size, strict=True):
        x = x.index_select(axis, places(x.shape[axis], count, mode).index(rounding))
    return x


@operator("resize_nearest")
def quantized(x: Tensor, *, parameters: Parameters, size: Pair, mode: str, rounding: str) -> Tensor:
    """Move codes; the output shares the input's parameters."""
    rows, columns = (places(x.shape[axis], size[axis - 2], mode).index(rounding) for axis in (2, 3))
    return x[:, :, rows[:, None], columns]
