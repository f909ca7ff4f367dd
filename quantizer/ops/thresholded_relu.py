"""Thresholded rectified linear unit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("thresholded_relu")
def reference(x: Tensor, *, alpha: float) -> Tensor:
    """Return x above alpha, 0 elsewhere."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("thresholded_relu")
def function(x: Tensor, *, alpha: float) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.threshold(x, alpha, 0.0)
