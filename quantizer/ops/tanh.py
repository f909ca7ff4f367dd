"""Hyperbolic tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("tanh")
def reference(x: Tensor) -> Tensor:
    """Return tanh(x)."""
    return torch.tanh(x)


@operator("tanh")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.tanh()
