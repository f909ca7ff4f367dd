"""Gaussian error linear unit."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator

CUBIC = 0.044715  # of the approximation by tanh (Hendrycks and Gimpel 2016)


@operator("gelu")
def reference(x: Tensor, *, approximate: str) -> Tensor:
    """Return x * Phi(x), with Phi exact or approximated by tanh; in float32 by the same steps as for its table.

    Where the product would overflow, or x is infinite, the result is x.

    Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016.
    """
    if approximate == "none":
        # F.gelu multiplies x by up to 2 before it halves the product
        return torch.where(x > torch.finfo(x.dtype).max / 4, x, F.gelu(x))
    inner = torch.tensor(2 / math.pi, dtype=x.dtype).sqrt() * (x + CUBIC * x**3)
    return x * (0.5 * (1 + inner.tanh()))


@operator("gelu")
def function(x: Tensor, *, approximate: str) -> Tensor:
    """Return the function that tables hold: Phi by erf in torch's way, or by tanh in one order of operations."""
    if approximate == "none":
        return F.gelu(x)
    factor = torch.sqrt(torch.tensor(2 / math.pi, dtype=x.dtype))
    return x * (0.5 * (1 + torch.tanh(factor * (x + CUBIC * torch.pow(x, 3)))))
