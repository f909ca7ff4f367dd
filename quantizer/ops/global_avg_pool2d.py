"""Mean over all places of each channel."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_mean
from quantizer.ops import operator


@operator("global_avg_pool2d")
def reference(x: Tensor) -> Tensor:
    """Average x [n, c, h, w] over h and w."""
    size = (x.shape[2], x.shape[3])
    return F.avg_pool2d(x, size, divisor_override=1) / (size[0] * size[1])


@operator("global_avg_pool2d")
def accumulate(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Sum the centred codes of each channel."""
    return centred(x, parameters.inputs["x"]).flatten(2).sum(2)[:, :, None, None]


@operator("global_avg_pool2d")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Divide the exact sum by the number of pixels and round once."""
    return requantize_mean(accumulate(x, parameters=parameters), x.shape[2] * x.shape[3], parameters)
