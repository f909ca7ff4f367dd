"""Floor."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("floor")
def reference(x: Tensor) -> Tensor:
    """Return the largest integer that is not above x."""
    return torch.floor(x)


@operator("floor")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return x.floor()
