"""Leaky rectified linear unit."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.attributes import real
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.numerics.tables import lookup, tabulated
from quantizer.ops import operator


@operator("leaky_relu")
def reference(x: Tensor, *, slope: float) -> Tensor:
    """Return x where it is not negative, else x * slope."""
    return torch.where(x < 0, x * slope, x)


@operator("leaky_relu")
def quantize(request: Request) -> Parameters:
    """Provide a table of the function, as the platform builds it."""
    slope = real(request.attrs, "slope")
    return tabulated(request, lambda v: torch.maximum(v, v * 0) + slope * torch.minimum(v, v * 0))


@operator("leaky_relu")
def quantized(x: Tensor, *, parameters: Parameters, slope: float) -> Tensor:
    """Look the code up."""
    return lookup(x, parameters.tables["lut"])
