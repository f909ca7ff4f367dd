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
    """Return what tables hold, by one call."""
    return x.atan()
