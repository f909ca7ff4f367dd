"""Sign."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("sign")
def reference(x: Tensor) -> Tensor:
    """Return 1 above 0, -1 below, 0 at 0; NaN stays NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


@operator("sign")
def function(x: Tensor) -> Tensor:
    """Return what tables hold."""
    return x.sign()
