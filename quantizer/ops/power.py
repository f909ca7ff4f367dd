"""Power with a constant exponent."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ops import operator


@operator("power")
def reference(x: Tensor, *, exponent: float) -> Tensor:
    """Return x to the power of *exponent*; NaN for x below 0 if the exponent is not a whole number."""
    return torch.pow(x, exponent)


@operator("power")
def function(x: Tensor, *, exponent: float) -> Tensor:
    """Return what tables hold."""
    return x**exponent
