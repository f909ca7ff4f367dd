"""Logistic function."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.tables import lookup, tabulated
from quantizer.ops import operator


@operator("sigmoid")
def reference(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return torch.sigmoid(x)


@operator("sigmoid")
def quantize(request: Request) -> Parameters:
    """Hand a table of the function, as the platform builds it."""
    return tabulated(request, lambda v: 1 / (1 + torch.exp(-v)))


@operator("sigmoid")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up."""
    return lookup(x, parameters.tables["lut"])
