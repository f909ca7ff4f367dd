"""Logarithm of softmax: exponentials from a table, the logarithm of their sum taken off each distance."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics import logarithm_tables
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, Staged, Table
from quantizer.numerics.rounding import round_tensor
from quantizer.numerics.tables import linspace
from quantizer.ops import operator

UNIT_BITS = 30


@operator("log_softmax")
def reference(x: Tensor, *, axis: int) -> Tensor:
    """Return x less the logarithm of the sum of exp(x) along *axis*; in float32 the function Compass calls."""
    return torch.log_softmax(x, dim=axis)


@operator("log_softmax")
def quantize(request: Request) -> Parameters:
    """Hand the exponentials of every distance from the largest code, in units of 2**-30."""
    parameters = default_parameters(request)
    distance = torch.arange(1 << request.scheme.activation.bits, dtype=torch.float64)
    entries = torch.round(torch.exp(-distance * parameters.inputs["x"].scale) * 2.0**UNIT_BITS).to(torch.int64)
    table = Table(entries, first=0, step=-1, unit=2.0**-UNIT_BITS, bits=UNIT_BITS + 1)
    return replace(parameters, tables={"exp": table})


@operator("log_softmax")
def quantized(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look exponentials up, add them exactly; distance less logarithm in float64, rounded once."""
    inp, output, table = parameters.inputs["x"], parameters.outputs["y"], parameters.tables["exp"]
    largest = x.amax(dim=axis, keepdim=True)
    exponentials = table.entries[largest - x]
    total = exponentials.sum(dim=axis, keepdim=True).double() * table.unit
    value = ((x - largest) * inp.scale - torch.log(total)) / output.scale
    codes = round_tensor(value, parameters.platform.rounding).long() + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials})


@operator("log_softmax", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand float32 exponentials over linspace; the output reaches from -16 to 0 and has every code of its format.

    Source: the Compass Optimizer's LogSoftmax on X2 and later, in its float32 arithmetic. Where shares are calibrated, that of
    targets before X2.
    """
    if logarithm_tables.SHARES in request.ranges:
        return logarithm_tables.handed(request)
    parameters = default_parameters(request)
    x, y, bits = parameters.inputs["x"], parameters.outputs["y"], request.scheme.activation.bits
    if x.steps is None or y.steps is None:
        raise ValueError("compass parameters carry steps")
    size, last = 1 << min(bits, request.scheme.activation.lut_bits), (1 << bits) - 1
    values = linspace(0, last, size) * (1 / -x.steps)
    with pinned():
        entries = torch.exp(values).flip(0)
    table = Table(entries, first=-last, step=(last + 1) // size, unit=1.0, bits=24)
    return replace(parameters, outputs={"y": replace(y, qmin=y.first)}, tables={"exp": table})


@operator("log_softmax", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Interpolate exponentials and add them in float32; bring distance and logarithm to the output's steps, round once."""
    if "log" in parameters.tables:
        return logarithm_tables.looked_up(x, parameters, axis)
    inp, output, table = parameters.inputs["x"], parameters.outputs["y"], parameters.tables["exp"]
    if inp.steps is None or output.steps is None:
        raise ValueError("compass parameters carry steps")
    distance = x - x.amax(dim=axis, keepdim=True)
    exponentials = _chord(distance - table.first, table)
    with pinned():
        logarithm = torch.log(exponentials.sum(dim=axis, keepdim=True))
    codes = torch.round(distance.float() * (output.steps / inp.steps) - logarithm * output.steps).long()
    return Staged((codes + output.zero_point).clamp(output.qmin, output.qmax), {})


def _chord(place: Tensor, table: Table) -> Tensor:
    """Return float32 entries at *place*, between two of them on the chord; the last one repeats."""
    entries = torch.cat([table.entries, table.entries[-1:]])
    index = place // table.step
    return entries[index] + (entries[index + 1] - entries[index]) * (place % table.step) / table.step
