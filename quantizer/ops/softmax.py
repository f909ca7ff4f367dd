"""Softmax: exponentials from a table, their sum, one division."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics import float24, powers_of_two
from quantizer.numerics.multipliers import compass
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, Staged, Table
from quantizer.numerics.quotient import divide, floor_divide
from quantizer.numerics.tables import linspace, lookup
from quantizer.ops import operator

UNIT_BITS = 30


@operator("softmax")
def reference(x: Tensor, *, axis: int) -> Tensor:
    """Return exp(x) / sum exp(x) along *axis*, shifted by the largest element; in float32 the function Compass calls."""
    return torch.softmax(x, dim=axis)


@operator("softmax")
def quantize(request: Request) -> Parameters:
    """Hand the exponentials of every distance from the largest code, in units of 2**-30."""
    parameters = default_parameters(request)
    x = parameters.inputs["x"]
    distance = torch.arange(1 << request.scheme.activation.bits, dtype=torch.float64)
    entries = torch.round(torch.exp(-distance * x.scale) * 2.0**UNIT_BITS).to(torch.int64)
    table = Table(entries, first=0, step=-1, unit=2.0**-UNIT_BITS, bits=UNIT_BITS + 1)
    return _with(parameters, table)


@operator("softmax")
def quantized(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up exponentials, add them exactly, divide once."""
    output = parameters.outputs["y"]
    exponentials = parameters.tables["exp"].entries[x.amax(dim=axis, keepdim=True) - x]
    total = exponentials.sum(dim=axis, keepdim=True)
    codes = divide(exponentials, total, float(output.scale), parameters.platform.rounding) + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials})


@operator("softmax", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand exponentials of so many bits as the platform says over linspace, and the multiplier of the output's steps.

    Source: the Compass Optimizer's table method; float32, in its order of operations (facts: cases/reference/compass/softmax).
    The logarithm is rounded from float64: that is what its float32 one gave.
    """
    tables = request.platform.tables
    method = tables.fast["softmax"] if request.scheme.activation.fast else tables.exponential
    if method in powers_of_two.HALVES or method == powers_of_two.BY_TABLES:
        return powers_of_two.quantize(request, method)
    parameters = default_parameters(request)
    x, y = parameters.inputs["x"], parameters.outputs["y"]
    if x.steps is None or y.steps is None:
        raise ValueError("compass parameters carry steps")
    bits = request.scheme.activation.bits
    size = 1 << min(bits, request.scheme.activation.lut_bits)
    wide = tables.exponential_bits or max(16, 32 - math.ceil(math.log2(request.shapes["x"][_axis(request)])))
    last, largest = (1 << bits) - 1, (1 << wide) - 1
    offset = torch.tensor(math.log(largest), dtype=torch.float32) + x.zero_point / x.steps
    values = (linspace(0, last, size) - last - x.zero_point) * (1 / x.steps) + offset
    with pinned():
        entries = torch.exp(values).round().clamp(0, largest).to(torch.int64)
    step = 1 << (bits - int(math.log2(size)))
    table = Table(entries, first=-last, step=step, unit=1.0 / largest, bits=wide)
    mantissa, shift = compass(y.steps, bits, positive=request.platform.multiplier.positive_shifts)
    found = _with(parameters, table, multiplier=int(mantissa), shift=int(shift))
    if method != "float24":
        return found
    return replace(found, tables={**found.tables, "powers": float24.power_table()})


@operator("softmax", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up exponentials, add, take one integer reciprocal per row, multiply, round half to even.

    A short axis of many rows of 8 bits takes the quotient first and the multiplier second, as the original does.
    """
    if "halves" in parameters.numbers:
        return powers_of_two.quantized(x, parameters, axis)
    if "powers" in parameters.tables:
        return float24.softmax(x, parameters, axis)
    output, table, numbers = parameters.outputs["y"], parameters.tables["exp"], parameters.numbers
    exponentials = lookup(x - x.amax(dim=axis, keepdim=True), table)
    total = exponentials.sum(dim=axis, keepdim=True).clamp(min=1)
    base = 30 if int(table.entries.max()) == 1 else 31
    size, bits = x.shape[axis], parameters.inputs["x"].dtype.bits
    if size < 8 and (x.numel() // size) % 128 == 0 and bits <= 8:
        enlarge = base - math.ceil(math.log2(max(int(table.entries.max()), 1)))
        stage = torch.div((exponentials << enlarge) + (total >> 1), total, rounding_mode="floor")
        name, value, shift = "quotient", stage.double() * numbers["multiplier"], numbers["shift"] + enlarge
    else:
        enlarge = base - math.ceil(math.log2(max(numbers["multiplier"], 1)))
        stage = floor_divide(numbers["multiplier"] << enlarge, total)
        name, value, shift = "reciprocal", (exponentials * stage).double(), numbers["shift"] + enlarge
    codes = torch.round(value * 2.0**-shift).to(torch.int64) + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials, name: stage})


def _axis(request: Request) -> int:
    return int(request.attrs["axis"])  # type: ignore[arg-type]


def _with(parameters: Parameters, table: Table, **numbers: int) -> Parameters:
    return Parameters(
        platform=parameters.platform,
        inputs=parameters.inputs,
        outputs=parameters.outputs,
        tables={"exp": table},
        numbers=numbers,
        accumulator_bits=parameters.accumulator_bits,
    )
