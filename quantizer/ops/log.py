"""Natural logarithm."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("log")
def reference(x: Tensor) -> Tensor:
    """Return the logarithm of x: -inf at 0, NaN below."""
    return torch.log(x)


@operator("log")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.log()
