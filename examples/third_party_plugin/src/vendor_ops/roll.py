"""Elements moved along one axis, the last ones back to the front: codes move, nothing is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("roll")
def reference(x: Tensor, *, shifts: int, dims: int) -> Tensor:
    """Move each element by shifts places along axis dims."""
    return torch.roll(x, shifts, dims)


@operator("roll")
def quantized(x: Tensor, *, parameters: Parameters, shifts: int, dims: int) -> Tensor:
    """Take each code from where it was; the output shares the input's parameters."""
    size = x.shape[dims]
    return x.index_select(dims, (torch.arange(size) - shifts) % size)
