"""Hyperbolic tangent."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics import aten, float32_tanh, litert
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
    """Return what tables hold; Compass calls the same."""
    return x.tanh()


@operator("tanh", platform=aten.PLATFORMS)
def quantize_torch(request: Request) -> Parameters:
    """Hand the tables of whole vectors and of the rest of a row, of the float32 function rounded from float64.

    QNNPACK has one table for both, that of the rest.
    """
    parameters = aten.lane_tables(request, lambda v: torch.tanh(v.double()).float())
    if request.platform.platform != "torch_qnnpack":
        return parameters
    return replace(parameters, tables=dict.fromkeys((aten.VECTOR, aten.REST), parameters.tables[aten.REST]))


@operator("tanh", platform=aten.PLATFORMS)
def quantized_torch(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up in the table of its place."""
    return aten.looked_up(x, parameters)


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
