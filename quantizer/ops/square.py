"""Square."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("square")
def reference(x: Tensor) -> Tensor:
    """Return x times x."""
    return x * x


@operator("square")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return torch.square(x)
