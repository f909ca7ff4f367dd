"""Arc tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("atan")
def reference(x: Tensor) -> Tensor:
    """Return the angle in radians whose tangent is x."""
    return torch.atan(x)


@operator("atan")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.atan()
