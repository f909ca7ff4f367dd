"""Error function."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("erf")
def reference(x: Tensor) -> Tensor:
    """Return the error function of x."""
    return torch.erf(x)


@operator("erf")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return x.erf()
