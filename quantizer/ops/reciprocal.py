"""Inverse."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("reciprocal")
def reference(x: Tensor) -> Tensor:
    """Return 1 / x. At 0 it is inf with the sign of the zero."""
    return torch.reciprocal(x)


@operator("reciprocal")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return torch.reciprocal(x)
