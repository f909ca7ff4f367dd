"""Tables of a function of one input as torch's kernels compute it: for whole vectors, and for the rest of a row."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.platforms import Platform
from quantizer.numerics.float32_stages import dequantized_fused, in_vectors, inverse, rounded_alone
from quantizer.numerics.fused import multiply_add
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, QParams, Table
from quantizer.numerics.request import Request
from quantizer.numerics.tables import Function

VECTOR, REST = "vector", "rest"
"""Names of a function's two tables: for whole vectors, and for the rest of a row."""
LOG2_E = 1.442695040888963
LN2 = (0.693145751953125, 1.428606765330187e-06)
"""log(2) in two float32 parts, the first short enough that its products with whole numbers are exact."""
COEFFICIENTS = (
    0.00019852762,
    0.0013930436,
    0.008333361,
    0.041666485,
    0.16666667,
    0.5,
)
"""Coefficients of the powers 7 to 2, in float32."""
LEAST, MOST = -104.0, 100.0
"""The float32 exponential is 0 below the first number, and infinite above the second."""


def lane_tables(request: Request, f: Function) -> Parameters:
    """Return the default parameters with two tables of *f* (float32 in, float32 out)."""
    parameters = default_parameters(request)
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    codes = torch.arange(x.qmin, x.qmax + 1)
    scale, one_over = x.scale.float(), inverse(y.scale)
    # vectors dequantize by a fused multiply-add, scalar code subtracts the zero point first
    vector = (f(dequantized_fused(codes, scale, x.zero_point)) * one_over).round() + y.zero_point
    plain = (codes - x.zero_point).float() * scale
    rest = rounded_alone(f(plain) * one_over, y, request.platform)
    return _with_tables(parameters, x, y, vector, rest)


def logistic_tables(request: Request) -> Parameters:
    """Return the default parameters with two tables of float32 `1 / (1 + exp(-x))`.

    Both are computed from (code - zero point) * scale. Whole vectors use `vector_exponential` and stay in float32; the
    rest of a row uses the nearest float32 exponential, and adds and divides in float64. Verified on torch 2.13 for
    every code under 1,500 scales, which were chosen so that a code lies next to a tie.
    """
    parameters = default_parameters(request)
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    negated = -((torch.arange(x.qmin, x.qmax + 1) - x.zero_point).float() * x.scale.float())
    one_over, zero = inverse(y.scale), y.zero_point
    vector = (1.0 / (1.0 + vector_exponential(negated)) * one_over).round() + zero
    nearest = torch.exp(negated.double()).float().double()
    rest = rounded_alone((1.0 / (1.0 + nearest)).float() * one_over, y, request.platform)
    return _with_tables(parameters, x, y, vector, rest)


def vector_exponential(x: Tensor) -> Tensor:
    """Return exp(x) of float32 as vectors compute it: a polynomial of degree 7 in fused steps, within one ULP.

    Source: Sleef's expf of 1.0 ULP, which ATen's AVX2 and AVX-512 vectors use.
    """
    # x = power * ln 2 + rest; |rest| <= ln 2 / 2
    power = (x * torch.tensor(LOG2_E, dtype=torch.float32)).round()
    rest = x
    for part in LN2:
        rest = multiply_add(power, torch.tensor(-part, dtype=torch.float32), rest)
    value = torch.full_like(x, COEFFICIENTS[0])
    for coefficient in COEFFICIENTS[1:]:
        value = multiply_add(value, rest, torch.full_like(x, coefficient))
    # exp(rest) is 1 + rest + rest**2 times the polynomial
    value = 1.0 + multiply_add(rest * rest, value, rest)
    # by a power of two in float64, so that only a subnormal result is rounded
    found = (value.double() * torch.exp2(power.double())).float()
    return torch.where(x < LEAST, 0.0, torch.where(x > MOST, torch.inf, found))


def _with_tables(parameters: Parameters, x: QParams, y: QParams, vector: Tensor, rest: Tensor) -> Parameters:
    tables = {
        # an infinite factor times 0 is NaN
        name: Table(entries.nan_to_num(nan=0.0).clamp(y.qmin, y.qmax).long(), x.qmin, 1, float(y.scale), y.dtype.bits)
        for name, entries in ((VECTOR, vector), (REST, rest))
    }
    return replace(parameters, tables=tables)


def looked_up(x: Tensor, parameters: Parameters) -> Tensor:
    """Return the entry of each code, from the table for its place in the row."""
    vector, rest = (parameters.tables[name] for name in (VECTOR, REST))
    place = x - vector.first
    # the kernel processes the flattened tensor; its last, incomplete vector runs in scalar code
    within = in_vectors([tuple(x.shape)], parameters.platform.vector_lanes)
    return torch.where(within, vector.entries[place], rest.entries[place])


def code_of_bound(value: float, params: QParams, platform: Platform) -> int:
    """Return the code of one float32 number by the scalar quantizer: multiply, add the zero point, round to even."""
    steps = torch.tensor(value, dtype=torch.float32) * inverse(params.scale)
    return int(rounded_alone(steps, params, platform).double().clamp(params.qmin, params.qmax))
