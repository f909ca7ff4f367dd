"""Softsign."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("softsign")
def reference(x: Tensor) -> Tensor:
    """Return x / (1 + |x|)."""
    return x / (1 + x.abs())


@operator("softsign")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.softsign(x)
