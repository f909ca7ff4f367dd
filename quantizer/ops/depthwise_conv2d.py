"""2-d convolution of each channel with its own filters."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.products import convolved
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.windows import padded_for_torch, window_sizes
from quantizer.ops import operator

Pair = tuple[int, int]
Four = tuple[int, int, int, int]
MANY_CHANNELS = 1024
"""From so many channels on, all are summed at once: torch runs a kernel for each, which takes a microsecond or two."""


@operator("depthwise_conv2d")
def reference(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Pair, padding: Four, dilation: Pair
) -> Tensor:
    """Sum products over the windows of each channel.

    x [n, c, h, w], weight [c * multiplier, 1, kh, kw], bias [c * multiplier].

    Output channel o sees input channel o // multiplier.
    """
    x, zeros = padded_for_torch(x, padding)
    if x.shape[1] >= MANY_CHANNELS:
        return _all_channels(x, weight, bias, stride, zeros, dilation)
    return F.conv2d(x, weight, bias, stride, zeros, dilation, x.shape[1])


def _all_channels(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], zeros: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Sum products over the windows of all channels at once, in the order of torch's sum for one: the bias first."""
    kernel, channels = weight.shape[2:], x.shape[1]
    out = window_sizes(x.shape[2:], kernel, stride, [(size, size) for size in zeros], dilation)
    # [n, c, 1, places of a window, windows] times [c, multiplier, places, 1]
    windows = F.unfold(x, kernel, tuple(dilation), tuple(zeros), tuple(stride)).reshape(
        x.shape[0], channels, 1, kernel.numel(), -1
    )
    products = windows * weight.reshape(channels, -1, kernel.numel(), 1)
    start = products.new_zeros(1) if bias is None else bias.reshape(channels, -1, 1)
    return functools.reduce(torch.add, products.unbind(3), start).reshape(x.shape[0], -1, *out)


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
