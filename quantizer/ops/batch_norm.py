"""Batch normalisation at inference: one factor and one constant for each channel."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("batch_norm")
def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, axis: int) -> Tensor:
    """Multiply each slice along *axis* by its weight and add its bias."""
    y = x.movedim(axis, -1) * weight
    return (y if bias is None else y + bias).movedim(-1, axis)


@operator("batch_norm")
def accumulate(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters, axis: int) -> Tensor:
    """Multiply and add integers exactly."""
    along = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    factors = centred(weight, parameters.constants["weight"].params).reshape(along)
    # a channel's factor is a weight code; its constant is a bias in the unit of the products
    acc = centred(x, parameters.inputs["x"]) * factors
    return acc if bias is None else acc + bias.reshape(along)
