"""Clamp to two bounds."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.attributes import real
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.numerics.tables import lookup, tabulated
from quantizer.ops import operator


@operator("clip")
def reference(x: Tensor, *, low: float, high: float) -> Tensor:
    """Return x clamped to [low, high]."""
    return x.clamp(low, high)


@operator("clip")
def quantize(request: Request) -> Parameters:
    """Provide a table of the function, as the platform builds it."""
    low = real(request.attrs, "low")
    high = real(request.attrs, "high")
    return tabulated(
        request, lambda v: torch.minimum(torch.maximum(v, torch.full_like(v, low)), torch.full_like(v, high))
    )


@operator("clip")
def quantized(x: Tensor, *, parameters: Parameters, low: float, high: float) -> Tensor:
    """Look the code up."""
    return lookup(x, parameters.tables["lut"])
