"""Inverse square root."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("rsqrt")
def reference(x: Tensor) -> Tensor:
    """Return 1 / sqrt(x): inf at 0, NaN below."""
    return torch.rsqrt(x)


@operator("rsqrt")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return torch.rsqrt(x)
