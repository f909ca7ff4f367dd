"""Logistic function."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import litert
from quantizer.numerics.logistic_tables import (
    centred_logistic,
    float32_logistic,
    is_narrow,
    on_a_grid,
    read,
    tabulated_float32,
)
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator


@operator("sigmoid")
def reference(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return torch.sigmoid(x)


@operator("sigmoid")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return x.sigmoid()


@operator("sigmoid", platform=("tflite_ref", "tflite_builtin"))
def quantize_litert(request: Request) -> Parameters:
    """Hand a float32 table whose ties go away from zero; of 16 bits the entries of a logistic function on a grid."""
    if is_narrow(request):
        return tabulated_float32(request, float32_logistic, "half_away")
    return on_a_grid(request, tanh=False)


@operator("sigmoid", platform="xnnpack")
def quantize_xnnpack(request: Request) -> Parameters:
    """Hand a table of float64 values rounded to float32 together with the zero point; of 16 bits LiteRT's own."""
    if is_narrow(request):
        return tabulated_float32(request, centred_logistic, "half_even")
    return on_a_grid(request, tanh=False)


@operator("sigmoid", platform=litert.PLATFORMS)
def quantized_litert(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up, or interpolate on the grid."""
    return read(x, parameters, tanh=False)
