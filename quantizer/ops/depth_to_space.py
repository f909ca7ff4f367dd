"""Moves blocks of channels into blocks of pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("depth_to_space")
def reference(x: Tensor, *, block: int, mode: str) -> Tensor:
    """Move channels of x [n, c, h, w] into blocks. The place is the channel's outer part (DCR) or inner part (CRD)."""
    n, c, h, w = x.shape
    depth = c // block**2
    if mode == "DCR":
        # the channel is (row, column, depth); result [n, depth, h, row, w, column]
        parts = x.reshape(n, block, block, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        # the channel is (depth, row, column)
        parts = x.reshape(n, depth, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, depth, h * block, w * block)


@operator("depth_to_space")
def quantized(x: Tensor, *, parameters: Parameters, block: int, mode: str) -> Tensor:
    """Move codes, the channels of one position in the block at a time; the output shares the input's parameters."""
    n, c, h, w = x.shape
    depth, places = c // block**2, block**2
    # every element is written below: each place of a block belongs to one slice of channels
    codes = torch.empty(n, depth, h * block, w * block, dtype=x.dtype)
    for place in range(places):
        row, column = divmod(place, block)
        part = x[:, place * depth : (place + 1) * depth] if mode == "DCR" else x[:, place::places]
        codes[:, :, row::block, column::block] = part
    return codes
