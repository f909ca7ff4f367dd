"""2-d convolution of each channel with its own filters."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.products import convolved
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.windows import padded_for_torch
from quantizer.ops import operator

Pair = tuple[int, int]
Four = tuple[int, int, int, int]


@operator("depthwise_conv2d")
def reference(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Pair, padding: Four, dilation: Pair
) -> Tensor:
    """Sum products over the windows of each channel.

    x [n, c, h, w], weight [c * multiplier, 1, kh, kw], bias [c * multiplier].

    Output channel o sees input channel o // multiplier.
    """
    x, zeros = padded_for_torch(x, padding)
    return F.conv2d(x, weight, bias, stride, zeros, dilation, x.shape[1])


@operator("depthwise_conv2d")
def accumulate(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    parameters: Parameters,
    stride: Pair,
    padding: Four,
    dilation: Pair,
) -> Tensor:
    """Sum integer products of centred codes exactly, a group for each input channel."""
    # torch takes no 0 groups, which a tensor without channels would have
    groups = max(1, x.shape[1])
    return convolved(x, weight, bias, parameters, stride=stride, padding=padding, dilation=dilation, groups=groups)
