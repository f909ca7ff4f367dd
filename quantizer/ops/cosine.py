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
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.cos()
