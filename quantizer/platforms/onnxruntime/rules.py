"""Quantize rules of ONNX Runtime: the tables of its logistic function and of its softmax.

Its platform also selects generic arithmetics in `numerics` that come from ONNX Runtime: the scale
`(max - min) / (qmax - qmin)`, `rules.holding_bias` (in the float types of its quantizer), and means that add and divide
as it does (f32_dequantized).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.attributes import whole
from quantizer.numerics.fused import multiply_add
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Table
from quantizer.numerics.request import Request
from quantizer.numerics.tables import tabulated
from quantizer.ops import operator

ODD = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
EVEN = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
"""Coefficients of v**2, highest power first: v * ODD / EVEN is the logistic function of v less 1/2."""
BEYOND = 18.0
"""The kernel clamps inputs to [-18, 18] first."""


@operator("sigmoid", kind="quantize", platform="ort")
def logistic(request: Request) -> Parameters:
    """Provide a table of the logistic function, computed by a rational function instead of an exponential."""
    return tabulated(request, _rational_logistic)


def _rational_logistic(v: Tensor) -> Tensor:
    """Return the logistic function of float32 *v* as MLAS computes it on x86-64 with FMA, within 3 * 2**-24.

    Below 0 it is a difference from 1/2, so that small values have few significant bits. Source: MLAS's
    MlasComputeLogistic (onnxruntime 1.31), its coefficients and order of operations.
    """
    v = v.clamp(-BEYOND, BEYOND)
    square = v * v
    odd, even = (_polynomial(coefficients, square) for coefficients in (ODD, EVEN))
    # rounding may bring the sum below 0
    return (v * odd / even + 0.5).clamp(min=0.0)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Return the float32 polynomial by Horner's rule, each step fused."""
    first, *rest = (torch.tensor(value, dtype=torch.float32) for value in coefficients)
    total = first.expand(x.shape)
    for coefficient in rest:
        total = multiply_add(total, x, coefficient)
    return total


@operator("softmax", kind="quantize", platform="ort")
def softmax(request: Request) -> Parameters:
    """Provide float32 exponentials, scaled up so that their sum nearly fills float32.

    The scaling is computed in float32 up to the logarithm and in float64 from there on: with float64 throughout, every
    entry is off by up to 4e-6. The C library's logf is taken as correctly rounded, which it is for every axis of less
    than 60,594 elements.
    """
    parameters = default_parameters(request)
    scale = float(parameters.inputs["x"].scale)
    size = request.shapes["x"][whole(request.attrs, "axis")]
    # the largest exponential: size of them stay below the largest float32 number
    logarithm = _float32(math.log(_float32(torch.finfo(torch.float32).max / size)))
    # the kernel keeps a margin of e**5
    room = max(0.0, logarithm - 5) / scale
    distance = torch.arange(256, dtype=torch.float64)
    entries = torch.exp((room - distance) * scale).float().double()
    table = Table(entries, first=0, step=-1, unit=math.exp(-room * scale), bits=24)
    return replace(parameters, tables={"exp": table})


def _float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()
