"""Ceiling."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("ceil")
def reference(x: Tensor) -> Tensor:
    """Return the smallest integer that is not below x."""
    return torch.ceil(x)


@operator("ceil")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.ceil()
