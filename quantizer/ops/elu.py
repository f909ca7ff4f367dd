"""Exponential linear unit."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("elu")
def reference(x: Tensor, *, alpha: float) -> Tensor:
    """Return x where it is positive, else alpha * (exp(x) - 1)."""
    return F.elu(x, alpha)


@operator("elu")
def function(x: Tensor, *, alpha: float) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.elu(x, alpha)
