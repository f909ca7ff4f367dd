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
    """Return the real values of table entries: a single torch call, in the type of x."""
    return torch.square(x)
