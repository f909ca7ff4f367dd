"""Interleaves the channels of all groups."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("channel_shuffle")
def reference(x: Tensor, *, groups: int) -> Tensor:
    """Take the first channel of each group of x [n, c, h, w], then the second of each.

    Source: X. Zhang et al., "ShuffleNet", 2018.
    """
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


@operator("channel_shuffle")
def quantized(x: Tensor, *, parameters: Parameters, groups: int) -> Tensor:
    """Move codes; the output shares the input's parameters."""
    # not by a transposition as in the reference, so that both do not share a mistake
    size = x.shape[1] // groups
    return torch.cat([x[:, place::size] for place in range(size)], dim=1)
