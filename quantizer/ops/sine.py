"""Sine."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("sine")
def reference(x: Tensor) -> Tensor:
    """Return the sine of x, in radians."""
    return torch.sin(x)


@operator("sine")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.sin()
