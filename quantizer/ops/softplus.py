"""Softplus."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator


@operator("softplus")
def reference(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)); above 20, x itself, to which the result rounds in float32."""
    return F.softplus(x)


@operator("softplus")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries; above 20, x itself."""
    return F.softplus(x)
