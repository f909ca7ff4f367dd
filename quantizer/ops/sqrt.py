"""Square root."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("sqrt")
def reference(x: Tensor) -> Tensor:
    """Return the square root of x: NaN below 0."""
    return torch.sqrt(x)


@operator("sqrt")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.sqrt()
