"""Hard swish."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from quantizer.ops import operator

STEPS = 6
"""The divisor of the product. Above the largest number over it the product overflows, and the result is x itself."""


@operator("hard_swish")
def reference(x: Tensor) -> Tensor:
    """Return x * min(max(x + 3, 0), 6) / 6, without overflow."""
    return torch.where(x > torch.finfo(x.dtype).max / (2 * STEPS), x, F.hardswish(x))


@operator("hard_swish")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return F.hardswish(x)
