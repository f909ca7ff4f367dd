"""Tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("tan")
def reference(x: Tensor) -> Tensor:
    """Return the tangent of x, in radians."""
    return torch.tan(x)


@operator("tan")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.tan()
