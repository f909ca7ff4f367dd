"""Hyperbolic tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import float32_tanh, litert
from quantizer.numerics.logistic_tables import is_narrow, on_a_grid, read, tabulated_float32
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("tanh")
def reference(x: Tensor) -> Tensor:
    """Return tanh(x)."""
    return torch.tanh(x)


@operator("tanh")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return x.tanh()


@operator("tanh", platform=("tflite_ref", "tflite_builtin"))
def quantize_litert(request: Request) -> Parameters:
    """Hand a float32 table whose ties go away from zero; of 16 bits the entries of a logistic function on a grid."""
    if is_narrow(request):
        return tabulated_float32(request, float32_tanh.tanh, "half_away")
    return on_a_grid(request, tanh=True)


@operator("tanh", platform="xnnpack")
def quantize_xnnpack(request: Request) -> Parameters:
    """Hand a float32 table whose ties go to even; of 16 bits LiteRT's own."""
    if is_narrow(request):
        return tabulated_float32(request, float32_tanh.tanh, "half_even")
    return on_a_grid(request, tanh=True)


@operator("tanh", platform=litert.PLATFORMS)
def quantized_litert(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up, or interpolate on the grid."""
    return read(x, parameters, tanh=True)
