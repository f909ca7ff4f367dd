"""Images of another size, each element a weighted mean of the four around its position."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.quotient import divide_exactly
from quantizer.numerics.resize import places
from quantizer.ops import operator

Pair = tuple[int, int]


@operator("resize_bilinear")
def reference(x: Tensor, *, size: Pair, mode: str) -> Tensor:
    """Interpolate x [n, c, h, w] along rows, then along columns. Beyond the ends the first or last element holds."""
    for axis, count in zip((2, 3), size, strict=True):
        where = places(x.shape[axis], count, mode)
        low, high, second = where.neighbours()
        weight = (second.to(x.dtype) / where.bottom).reshape([-1 if i == axis else 1 for i in range(4)])
        first, last = x.index_select(axis, low), x.index_select(axis, high)
        x = first * (1 - weight) + last * weight
    return x


@operator("resize_bilinear")
def quantized(x: Tensor, *, parameters: Parameters, size: Pair, mode: str) -> Tensor:
    """Add the four elements times the whole numbers that their weights are of a common divisor, divide, round once."""
    params, mode_ = parameters.inputs["x"], parameters.platform.rounding
    rows, columns = (places(x.shape[axis], size[axis - 2], mode) for axis in (2, 3))
    total = torch.zeros(*x.shape[:2], *size, dtype=torch.int64)
    codes = centred(x, params)
    top, bottom, down = rows.neighbours()
    left, right, across = columns.neighbours()
    for row, heights in ((top, rows.bottom - down), (bottom, down)):
        for column, widths in ((left, columns.bottom - across), (right, across)):
            total += codes[:, :, row[:, None], column] * heights[:, None] * widths
    divisor = torch.tensor(rows.bottom * columns.bottom).expand(total.shape)
    return (divide_exactly(total, divisor, Fraction(1), mode_) + params.zero_point).clamp(params.qmin, params.qmax)
