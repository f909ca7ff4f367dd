"""Largest element of each window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.windows import pool_padding, window_slices
from quantizer.ops import operator

Pair = tuple[int, int]
Four = tuple[int, int, int, int]


@operator("max_pool2d")
def reference(x: Tensor, *, kernel: Pair, stride: Pair, padding: Four, ceil_mode: bool) -> Tensor:
    """Take the largest element of each window of x [n, c, h, w]; padding is never the largest."""
    (top, bottom), (left, right) = pool_padding(x.shape[2:], kernel, stride, padding, ceil_mode=ceil_mode)
    return F.max_pool2d(F.pad(x, (left, right, top, bottom), value=-torch.inf), kernel, stride)


@operator("max_pool2d")
def quantized(
    x: Tensor, *, parameters: Parameters, kernel: Pair, stride: Pair, padding: Four, ceil_mode: bool
) -> Tensor:
    """Compare codes: a positive scale keeps their order. Padding is the smallest code."""
    around = pool_padding(x.shape[2:], kernel, stride, padding, ceil_mode=ceil_mode)
    shape = [size + sum(pair) for size, pair in zip(x.shape[2:], around, strict=True)]
    # the smallest code is never larger than a code of x
    wide = torch.full((*x.shape[:2], *shape), parameters.inputs["x"].qmin, dtype=torch.int64)
    wide[:, :, around[0][0] : around[0][0] + x.shape[2], around[1][0] : around[1][0] + x.shape[3]] = x
    # one shifted slice for each place of a window: shape [places, n, c, h, w]
    return torch.stack([wide[index] for index in window_slices(shape, kernel, stride)]).amax(0)
