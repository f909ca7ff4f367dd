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
    """Return what tables hold, by one call."""
    return x.log()
