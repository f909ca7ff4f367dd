"""Logarithm of softmax: a table gives exponentials; the logarithm of their sum is subtracted from each distance."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Staged, Table
from quantizer.numerics.request import Request
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import operator

# an axis of up to 2**33 elements then adds up within int64
UNIT_BITS = 30


@operator("log_softmax")
def reference(x: Tensor, *, axis: int) -> Tensor:
    """Return x minus the logarithm of the sum of exp(x) along *axis*."""
    return torch.log_softmax(x, dim=axis)


@operator("log_softmax")
def quantize(request: Request) -> Parameters:
    """Provide the exponentials of every distance from the largest code, in units of 2**-30."""
    parameters = default_parameters(request)
    distance = torch.arange(1 << request.scheme.activation.bits, dtype=torch.float64)
    entries = torch.round(torch.exp(-distance * parameters.inputs["x"].scale) * 2.0**UNIT_BITS).to(torch.int64)
    table = Table(entries, first=0, step=-1, unit=2.0**-UNIT_BITS, bits=UNIT_BITS + 1)
    return replace(parameters, tables={"exp": table})


@operator("log_softmax")
def quantized(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up exponentials and add them exactly.

    Subtract the logarithm from the distance in float64, and round once.
    """
    inp, output, table = parameters.inputs["x"], parameters.outputs["y"], parameters.tables["exp"]
    largest = x.amax(dim=axis, keepdim=True)
    exponentials = table.entries[largest - x]
    total = exponentials.sum(dim=axis, keepdim=True).double() * table.unit
    value = ((x - largest) * inp.scale - torch.log(total)) / output.scale
    codes = round_tensor(value, parameters.platform.rounding).long() + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials})
