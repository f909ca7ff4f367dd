"""Logistic function."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import aten, litert
from quantizer.numerics.fused import multiply_add
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
from quantizer.numerics.tables import tabulated
from quantizer.ops import operator

ODD = (
    4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01,
)  # fmt: skip
EVEN = (
    6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03, 1.16817656904453e-01,
    9.93151921023180e-01,
)  # fmt: skip
"""Coefficients of v**2, highest power first: v * ODD / EVEN is the logistic function of v less 1/2."""
BEYOND = 18.0
"""Where ONNX Runtime takes the function to be flat."""


@operator("sigmoid")
def reference(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return torch.sigmoid(x)


@operator("sigmoid")
def function(x: Tensor) -> Tensor:
    """Return what tables hold; Compass calls the same."""
    return x.sigmoid()


@operator("sigmoid", platform="ort")
def quantize_ort(request: Request) -> Parameters:
    """Hand a table of the rational function that ONNX Runtime evaluates instead of an exponential."""
    return tabulated(request, _rational_logistic)


def _rational_logistic(v: Tensor) -> Tensor:
    """Return the logistic function of float32 *v* as MLAS computes it on x86-64 with FMA: within 3 * 2**-24, not below 0.

    Below 0 a difference from 1/2, so that small values are few bits long. Source: MLAS's MlasComputeLogistic (onnxruntime
    1.31), its coefficients and order of operations.
    """
    v = v.clamp(-BEYOND, BEYOND)
    square = v * v
    odd, even = (_polynomial(coefficients, square) for coefficients in (ODD, EVEN))
    return (v * odd / even + 0.5).clamp(min=0.0)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Return the float32 polynomial by Horner's rule, each step fused."""
    first, *rest = (torch.tensor(value, dtype=torch.float32) for value in coefficients)
    total = first.expand(x.shape)
    for coefficient in rest:
        total = multiply_add(total, x, coefficient)
    return total


@operator("sigmoid", platform=aten.PLATFORMS)
def quantize_torch(request: Request) -> Parameters:
    """Hand the table of float32 1 / (1 + exp(-x)); the exponential is rounded from float64."""
    return tabulated(request, lambda v: 1.0 / (1.0 + torch.exp(-v.double()).float()))


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
