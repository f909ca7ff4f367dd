"""1-d convolution."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.products import convolved
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.windows import padded_for_torch
from quantizer.ops import operator

Sizes = tuple[int, ...]


@operator("conv1d")
def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    """Sum products over windows: x [n, c, w], weight [o, c/groups, kw], bias [o]."""
    x, zeros = padded_for_torch(x, padding)
    return F.conv1d(x, weight, bias, stride, zeros, dilation, groups)


@operator("conv1d")
def accumulate(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    parameters: Parameters,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    """Sum integer products of centred codes exactly."""
    return convolved(x, weight, bias, parameters, stride=stride, padding=padding, dilation=dilation, groups=groups)
