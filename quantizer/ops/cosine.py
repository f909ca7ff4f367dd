"""Cosine."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("cosine")
def reference(x: Tensor) -> Tensor:
    """Return the cosine of x, in radians."""
    return torch.cos(x)


@operator("cosine")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return x.cos()
