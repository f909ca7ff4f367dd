"""Sine."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import periods
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("sine")
def reference(x: Tensor) -> Tensor:
    """Return the sine of x, in radians."""
    return torch.sin(x)


@operator("sine")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return x.sin()


@operator("sine", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand a table over the codes, or over one period."""
    return periods.quantize(request, torch.sin)


@operator("sine", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up, or its place within the period."""
    return periods.quantized(x, parameters)
