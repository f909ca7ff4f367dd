"""Batch normalisation at inference: one factor and one constant for each channel."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import aten
from quantizer.numerics.fused import multiply_add
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
    acc = centred(x, parameters.inputs["x"]) * factors
    return acc if bias is None else acc + bias.reshape(along)


@operator("batch_norm", platform="compass")
def accumulate_compass(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters, axis: int
) -> Tensor:
    """Multiply raw codes and add a constant that has absorbed the zero point, each rounded to float32.

    Source: the Compass Optimizer's forward, bit for bit on its recorded runs (cases/reference/compass/batchnorm).
    """
    along = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    factors = centred(weight, parameters.constants["weight"].params)
    constant = -parameters.inputs["x"].zero_point * factors
    constant = constant if bias is None else bias + constant
    return (x.float() * factors.reshape(along).float() + constant.reshape(along).float()).long()


@operator("batch_norm", platform=aten.PLATFORMS)
def quantized_torch(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters, axis: int
) -> Tensor:
    """Fuse factor and constant of a channel, both float32 in output steps; round, then add the zero point."""
    assert parameters.rescale is not None
    along = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    known, output = parameters.constants, parameters.outputs["y"]
    factor = (centred(weight, known["weight"].params).float() * known["weight"].params.scale.float()).double()
    factor = (factor * parameters.rescale.mantissa).float().reshape(along)
    constant = torch.zeros_like(factor)
    if bias is not None:
        values = bias.float() * known["bias"].params.scale.float()
        constant = (values.double() / output.scale).float().reshape(along)
    scaled = multiply_add(centred(x, parameters.inputs["x"]).float(), factor, constant)
    return (scaled.round().long() + output.zero_point).clamp(output.qmin, output.qmax)
