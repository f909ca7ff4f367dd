"""Repeats the whole tensor along each axis."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("replicate")
def reference(x: Tensor, *, repeats: tuple[int, ...]) -> Tensor:
    """Repeat x repeats[i] times along axis i."""
    return x.repeat(repeats)


@operator("replicate")
def quantized(x: Tensor, *, parameters: Parameters, repeats: tuple[int, ...]) -> Tensor:
    """Move codes; the output shares the input's parameters."""
    for axis, count in enumerate(repeats):
        x = torch.cat([x] * count, dim=axis)
    return x
