"""Softmax: exponentials from a table, their sum, one division."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.attributes import whole
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Staged, Table
from quantizer.numerics.quotient import divide
from quantizer.numerics.request import Request
from quantizer.ops import operator

# an axis of up to 2**33 elements then adds up within int64
UNIT_BITS = 30


@operator("softmax")
def reference(x: Tensor, *, axis: int) -> Tensor:
    """Return exp(x) / sum exp(x) along *axis*, shifted by the largest element."""
    return torch.softmax(x, dim=axis)


@operator("softmax")
def quantize(request: Request) -> Parameters:
    """Provide the exponentials of every distance from the largest code, in units of 2**-30."""
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


def _axis(request: Request) -> int:
    return whole(request.attrs, "axis")


def _with(parameters: Parameters, table: Table, **numbers: int) -> Parameters:
    return Parameters(
        platform=parameters.platform,
        inputs=parameters.inputs,
        outputs=parameters.outputs,
        tables={"exp": table},
        numbers=numbers,
        accumulator_bits=parameters.accumulator_bits,
    )
