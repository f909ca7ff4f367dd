"""Winograd's convolution F(2, 3) along rows: two outputs of a kernel of three with four multiplications instead of six.

Every step is float32, in the original's order of operations, so that sums round as in the original. Source: Lavin and
Gray 2015: of an input piece d and a kernel row g, the outputs are `A^T ((G g) * (B^T d))`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from quantizer.numerics.pinned import pinned

KERNEL, TILE, STEP = 3, 4, 2
"""Sizes of a kernel row, of the input that a tile reads, and of its outputs."""
INPUT = torch.tensor([[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]])
"""The input transform B^T."""
WEIGHT = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])
"""The kernel transform G."""
OUTPUT = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]])
"""The output transform A^T."""


@pinned()
def transformed(weights: Tensor) -> Tensor:
    """Return weights [o, c, 3, 3] with every row transformed, [o, c, 3, 4]."""
    return weights.float().reshape(-1, KERNEL).matmul(WEIGHT.t()).reshape(*weights.shape[:-1], TILE)


@pinned()
def convolved(x: Tensor, weights: Tensor, padding: tuple[int, int, int, int], size: tuple[int, int]) -> Tensor:
    """Return sums [n, o, h, w] of x [n, c, h, w] and transformed weights; *padding*: top, left, bottom, right zeros."""
    top, left, bottom, right = padding
    # A tile gives two outputs: an odd width gets one column of zeros more, whose output is cut off at the end.
    odd = (left + x.shape[3] + right) % STEP
    padded = functional.pad(x.float(), (left, right + odd, top, bottom))
    # [n, c, height, width / 2, 3, 4]: neighbouring pieces overlap by two columns
    pieces = padded.unfold(2, KERNEL, 1).unfold(3, TILE, STEP)
    return torch.stack([_of_one(sample.contiguous(), weights.float(), size) for sample in pieces])


def _of_one(pieces: Tensor, weights: Tensor, size: tuple[int, int]) -> Tensor:
    """Return sums [o, height, width] of one image's pieces [c, height, width / 2, 3, 4]: over channels, then rows."""
    read = pieces.matmul(INPUT.t())
    products = read * weights[:, :, None, None]
    # [o, c, height, width / 2, 3, 4] summed over channels, then kernel rows; two outputs for each piece
    made = products.sum(1).sum(3).matmul(OUTPUT.t())
    return made.reshape(len(weights), made.shape[1], -1)[:, : size[0], : size[1]]
