"""Sigmoid linear unit."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("silu")
def reference(x: Tensor) -> Tensor:
    """Return x * sigmoid(x)."""
    return F.silu(x)


@operator("silu")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.silu(x)
