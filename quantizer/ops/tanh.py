"""Hyperbolic tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.tables import lookup, tabulated
from quantizer.ops import operator


@operator("tanh")
def reference(x: Tensor) -> Tensor:
    """Return tanh(x)."""
    return torch.tanh(x)


@operator("tanh")
def quantize(request: Request) -> Parameters:
    """Hand a table of the function, as the platform builds it."""
    return tabulated(request, lambda v: 1 - 2 / (torch.exp(2 * v) + 1))


@operator("tanh")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up."""
    return lookup(x, parameters.tables["lut"])
