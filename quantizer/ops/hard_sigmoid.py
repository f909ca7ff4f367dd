"""Hard sigmoid."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("hard_sigmoid")
def reference(x: Tensor, *, alpha: float, beta: float, low: float, high: float) -> Tensor:
    """Return alpha * x + beta, clamped to [low, high]."""
    return torch.clamp(alpha * x + beta, low, high)


@operator("hard_sigmoid")
def function(x: Tensor, *, alpha: float, beta: float, low: float, high: float) -> Tensor:
    """Return the real values of table entries. The line is clipped at the high bound first, then at the low one."""
    least, most = (torch.tensor(end, dtype=x.dtype) for end in (low, high))
    return torch.maximum(least, torch.minimum(alpha * x + beta, most))
