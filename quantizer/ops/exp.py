"""Exponential function."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("exp")
def reference(x: Tensor) -> Tensor:
    """Return e to the power of x."""
    return torch.exp(x)


@operator("exp")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.exp()
