"""Continuously differentiable exponential linear unit."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("celu")
def reference(x: Tensor, *, alpha: float) -> Tensor:
    """Return x where it is positive, else alpha * (exp(x / alpha) - 1).

    Source: J. T. Barron, "Continuously differentiable exponential linear units", 2017.
    """
    return F.celu(x, alpha)


@operator("celu")
def function(x: Tensor, *, alpha: float) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.celu(x, alpha)
