"""Fully connected layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.blocks import sums_of_blocks
from quantizer.numerics.kernels import linear
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("fully_connected")
def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply rows with filters: x [n, c], weight [o, c], bias [o]."""
    return F.linear(x, weight, bias)


@operator("fully_connected")
def accumulate(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters) -> Tensor:
    """Sum integer products of centred codes exactly, block by block where weights have blocks."""
    own = parameters.constants["weight"].params
    rows, filters = centred(x, parameters.inputs["x"]), centred(weight, own)
    if own.blocks is not None:
        return sums_of_blocks(linear, rows, filters, own, bias)
    acc = linear(rows, filters)
    return acc if bias is None else acc + bias
