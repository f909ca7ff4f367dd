"""Images of another size, each element a weighted mean of the four around its position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.quotient import divide_exactly
from quantizer.numerics.resize import float32_places, float32_weights, places
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import operator

Pair = tuple[int, int]
WEIGHT_BITS = 13
"""Binary places of Compass's weights."""


@operator("resize_bilinear")
def reference(x: Tensor, *, size: Pair, mode: str) -> Tensor:
    """Interpolate x [n, c, h, w] along the rows and then along the columns; beyond the ends the first or last element."""
    for axis, count in zip((2, 3), size, strict=True):
        where = places(x.shape[axis], count, mode)
        low, high, second = where.neighbours()
        weight = (second.to(x.dtype) / where.bottom).reshape([-1 if i == axis else 1 for i in range(4)])
        first, last = x.index_select(axis, low), x.index_select(axis, high)
        x = first * (1 - weight) + last * weight
    return x


@operator("resize_bilinear", platform="compass")
def reference_compass(x: Tensor, *, size: Pair, mode: str) -> Tensor:
    """Add the four elements times the products of their float32 weights, row by row, as Compass does."""
    total = x.new_zeros(())
    for part, weight in _neighbours(x, size, mode):
        total = total + part * weight
    return total


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


@operator("resize_bilinear", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand the binary places of the weights."""
    return replace(default_parameters(request), numbers={"weight_bits": WEIGHT_BITS})


@operator("resize_bilinear", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters, size: Pair, mode: str) -> Staged:
    """Add raw codes times weights of 13 bits in float32, divide, round half to even: weights need not add up to 1.

    Stages: weights, those of the four neighbours, row by row, rounded half up [4, rows, columns].
    """
    params, unit = parameters.outputs["y"], 2.0 ** parameters.numbers["weight_bits"]
    total, weights = torch.zeros(()), []
    for part, product in _neighbours(x, size, mode):
        weight = torch.floor(product * unit + 0.5)
        weights.append(weight.long())
        total = total + part.float() * weight
    codes = round_tensor((total / unit).double(), parameters.platform.rounding).long()
    return Staged(codes.clamp(params.qmin, params.qmax), {"weights": torch.stack(weights)})


def _neighbours(x: Tensor, size: Pair, mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the four neighbours of each place of the output, row by row, and their float32 weights [rows, columns]."""
    top, bottom, upper, lower = float32_weights(float32_places(x.shape[2], size[0], mode), x.shape[2])
    left, right, before, after = float32_weights(float32_places(x.shape[3], size[1], mode), x.shape[3])
    for row, height in ((top, upper), (bottom, lower)):
        for column, width in ((left, before), (right, after)):
            yield x[:, :, row[:, None], column], height[:, None] * width
