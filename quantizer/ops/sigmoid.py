"""Logistic function."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("sigmoid")
def reference(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return torch.sigmoid(x)


@operator("sigmoid")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.sigmoid()
