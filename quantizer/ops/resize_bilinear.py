"""Images resized: each output element is a weighted mean of the four inputs around its position."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.quotient import divide_exactly
from quantizer.numerics.resize import Places, places
from quantizer.ops import operator

Pair = tuple[int, int]


@operator("resize_bilinear")
def reference(x: Tensor, *, size: Pair, mode: str) -> Tensor:
    """Add the four elements of x [n, c, h, w] times the products of their weights, row by row.

    Beyond the ends, the first or last element is used. If both neighbours are the last element, each has the weight
    1/2.
    """
    rows, columns = (_weighted(places(x.shape[axis], size[axis - 2], mode), x.dtype) for axis in (2, 3))
    total = torch.zeros(*x.shape[:2], *size, dtype=x.dtype)
    for row, height in rows:
        for column, width in columns:
            total = total + width * height[:, None] * x[:, :, row[:, None], column]
    return total


def _weighted(where: Places, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return both neighbours of each position with their weights."""
    low, high, second = where.neighbours()
    # `bottom` is the common denominator of all positions along the axis
    weight = torch.where(low == high, 0.5, second.to(dtype) / where.bottom)
    return (low, 1 - weight), (high, weight)


@operator("resize_bilinear")
def quantized(x: Tensor, *, parameters: Parameters, size: Pair, mode: str) -> Tensor:
    """Write the weights as integers over a common divisor. Add the four products, divide, and round once."""
    params, mode_ = parameters.inputs["x"], parameters.platform.rounding
    rows, columns = (places(x.shape[axis], size[axis - 2], mode) for axis in (2, 3))
    total = torch.zeros(*x.shape[:2], *size, dtype=torch.int64)
    codes = centred(x, params)
    top, bottom, down = rows.neighbours()
    left, right, across = columns.neighbours()
    # integer weights: numerators over rows.bottom * columns.bottom, so that only the division rounds
    for row, heights in ((top, rows.bottom - down), (bottom, down)):
        for column, widths in ((left, columns.bottom - across), (right, across)):
            total += codes[:, :, row[:, None], column] * heights[:, None] * widths
    divisor = torch.tensor(rows.bottom * columns.bottom).expand(total.shape)
    return (divide_exactly(total, divisor, Fraction(1), mode_) + params.zero_point).clamp(params.qmin, params.qmax)
