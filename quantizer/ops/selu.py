"""Scaled exponential linear unit."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("selu")
def reference(x: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return gamma * x where x is positive, else gamma * alpha * (exp(x) - 1).

    Source: G. Klambauer et al., "Self-normalizing neural networks", 2017.
    """
    return gamma * F.elu(x, alpha)


@operator("selu")
def function(x: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return gamma * F.elu(x, alpha)
