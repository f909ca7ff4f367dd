"""Quantize rules of torch's quantized operators: tables for full vectors and for the tail of a row, exponentials.

Of the generic arithmetics in `numerics`, the factors for each rounding in float32 are oneDNN's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch

from quantizer.core.attributes import real, whole
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Table
from quantizer.numerics.request import Request
from quantizer.numerics.tables import tabulated
from quantizer.ops import operator
from quantizer.platforms.torch import lane_tables

PLATFORMS = ("torch_x86", "torch_fbgemm", "torch_qnnpack")
"""The platforms whose element-wise operators are torch's own, whatever their convolution library."""
IN_VECTORS = ("torch_x86", "torch_fbgemm")
"""The platforms whose sigmoid and softmax are also torch's own."""


@operator("clip", kind="quantize", platform=PLATFORMS)
def clip(request: Request) -> Parameters:
    """Provide the table of codes clamped to the codes of both bounds; the output has the input's parameters."""
    parameters = default_parameters(request)
    x = parameters.inputs["x"]
    bounds = (request.attrs["low"], request.attrs["high"])
    low, high = (lane_tables.code_of_bound(float(cast("float", bound)), x, request.platform) for bound in bounds)
    entries = torch.arange(x.qmin, x.qmax + 1).clamp(low, high)
    return replace(parameters, tables={"lut": Table(entries, x.qmin, 1, float(x.scale), x.dtype.bits)})


@operator("leaky_relu", kind="quantize", platform=PLATFORMS)
def leaky_relu(request: Request) -> Parameters:
    """Provide the tables of whole vectors and of the rest of a row: x, or the float32 product with the slope."""
    slope = torch.tensor(real(request.attrs, "slope"), dtype=torch.float32)
    return lane_tables.lane_tables(request, lambda v: torch.where(v > 0, v, v * slope))


@operator("sigmoid", kind="quantize", platform=IN_VECTORS)
def sigmoid(request: Request) -> Parameters:
    """Provide the tables of whole vectors and of the rest of a row."""
    return lane_tables.logistic_tables(request)


@operator("sigmoid", kind="quantize", platform="torch_qnnpack")
def sigmoid_of_one_table(request: Request) -> Parameters:
    """Provide the table of float32 1 / (1 + exp(-x)); the exponential is rounded from float64."""
    return tabulated(request, lambda v: 1.0 / (1.0 + torch.exp(-v.double()).float()))


@operator("softmax", kind="quantize", platform=IN_VECTORS)
def softmax(request: Request) -> Parameters:
    """Provide float32 exponentials of every distance from the largest code."""
    parameters = default_parameters(request)
    distance = torch.arange(256, dtype=torch.float64)
    entries = torch.exp(-distance * float(parameters.inputs["x"].scale)).float().double()
    return replace(parameters, tables={"exp": Table(entries, first=0, step=-1, unit=1.0, bits=24)})


@operator("softmax", kind="quantize", platform="torch_qnnpack")
def softmax_of_integers(request: Request) -> Parameters:
    """Provide exponentials in units of 2**-23, or in larger units if the sum along the axis would exceed 32 bits."""
    parameters = default_parameters(request)
    size = request.shapes["x"][whole(request.attrs, "axis")]
    # the sum of *size* entries must fit an unsigned 32-bit integer
    unit = min((2**32 - 1) / size, 2.0**23 - 1)
    distance = torch.arange(256, dtype=torch.float64)
    entries = torch.round(torch.exp(-distance * parameters.inputs["x"].scale) * unit).to(torch.int64)
    return replace(parameters, tables={"exp": Table(entries, first=0, step=-1, unit=1 / unit, bits=24)})


@operator("tanh", kind="quantize", platform=PLATFORMS)
def tanh(request: Request) -> Parameters:
    """Provide the tables of whole vectors and of the rest of a row; the float32 function is rounded from float64.

    QNNPACK uses one table for both, the table of the rest.
    """
    parameters = lane_tables.lane_tables(request, lambda v: torch.tanh(v.double()).float())
    if "torch_qnnpack" not in request.platform.places:
        return parameters
    return replace(
        parameters, tables=dict.fromkeys((lane_tables.VECTOR, lane_tables.REST), parameters.tables[lane_tables.REST])
    )
