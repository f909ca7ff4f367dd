"""Mish."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("mish")
def reference(x: Tensor) -> Tensor:
    """Return x * tanh(log(1 + exp(x))).

    Source: D. Misra, "Mish: a self regularized non-monotonic activation function", 2019.
    """
    return F.mish(x)


@operator("mish")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.mish(x)
