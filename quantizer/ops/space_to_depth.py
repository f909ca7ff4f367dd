"""Moves blocks of pixels into blocks of channels."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("space_to_depth")
def reference(x: Tensor, *, block: int) -> Tensor:
    """Move each place in a block of x [n, c, h, w] to the channel, whose outer part is the place."""
    n, c, h, w = x.shape
    # from [n, c, h, row, w, column] to [n, row, column, c, h, w]
    parts = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * block**2, h // block, w // block)


@operator("space_to_depth")
def quantized(x: Tensor, *, parameters: Parameters, block: int) -> Tensor:
    """Move codes, one place of the blocks after the other; the output shares the input's parameters."""
    places = [divmod(place, block) for place in range(block**2)]
    return torch.cat([x[:, :, row::block, column::block] for row, column in places], dim=1)
