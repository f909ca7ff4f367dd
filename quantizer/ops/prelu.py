"""Leaky rectified linear unit with a slope for each slice along one axis."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters, Rescale
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize import requantize
from quantizer.ops import operator


@operator("prelu")
def reference(x: Tensor, weight: Tensor, *, axis: int) -> Tensor:
    """Return x where it is not negative, else x times the slope of its slice along *axis*."""
    along = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    return torch.where(x < 0, x * weight.reshape(along), x)


@operator("prelu")
def quantized(x: Tensor, weight: Tensor, *, parameters: Parameters, axis: int) -> Tensor:
    """Rescale nonnegative codes, and the exact products of negative codes, to the output's scale.

    Round each once.
    """
    own, known, out = parameters.inputs["x"], parameters.constants["weight"].params, parameters.outputs["y"]
    axis, mode = axis % x.dim(), parameters.platform.rounding
    steps, none, divisor = centred(x, own), torch.zeros((), dtype=torch.int64), float(out.scale)
    # shaped to broadcast along *axis*
    factors = centred(weight, known).reshape([-1 if i == axis else 1 for i in range(x.dim())])
    above = requantize(steps, Rescale("exact", own.scale, none, divisor), out, rounding=mode)
    # below 0 a step is the product of both scales, which may differ from slice to slice
    product, shifts = own.scale * known.scale, torch.zeros(known.scale.shape, dtype=torch.int64)
    below = requantize(
        steps * factors, Rescale("exact", product, shifts, divisor), out, channel_axis=axis, rounding=mode
    )
    return torch.where(steps < 0, below, above)
