"""LogSoftmax by two tables in float32: exponentials, their share of the sum, and its logarithm."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.ir.formats.compass_tables import LARGEST, log_softmax_tables
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, QParams, Staged
from quantizer.numerics.quotient import floor_divide
from quantizer.numerics.ratio_to_multiplier import float32_multiplier
from quantizer.numerics.request import Request
from quantizer.numerics.rules import activation_params
from quantizer.numerics.tables import linspace, lookup
from quantizer.optimize.logarithm_stages import LOGARITHMS, SHARES

# the shapes for which the original divides first, as its softmax does
SHORT_AXIS, ROWS, PLACES = 8, 128, 11
"""(elements, rows, places): with fewer elements, and a multiple of these rows, a quotient has these binary places."""


def provided(request: Request) -> Parameters:
    """Return parameters with both tables, the multiplier to the steps of the shares, and the output of the logarithms.

    GraphError if softmax has more output codes than the table of logarithms has entries, one for each input code.
    """
    part, rules = request.scheme.activation, request.platform.parameters
    parameters = default_parameters(request)
    x = parameters.inputs["x"]
    shares = activation_params(*request.ranges[SHARES], part, rules, signed=False)
    output = activation_params(*request.ranges[LOGARITHMS], part, rules, signed=True)
    if part.bits > x.bits:
        text = f"{request.spec.op}: shares of {part.bits} bits leave the table of logarithms, which has {x.bits}"
        raise GraphError(f"{text}. Give the layer as many activation_bits as what it reads.")
    mantissa, shift = float32_multiplier(
        shares.float32_steps, part.bits, positive=request.platform.multiplier.positive_shifts
    )
    size = 1 << min(x.bits, part.lut_bits)
    return replace(
        parameters,
        outputs={"y": output},
        rescale=None,
        numbers={"multiplier": int(mantissa), "shift": int(shift)},
        tables=log_softmax_tables(_exponentials(x, size), _logarithms(output, size), x, output),
    )


def looked_up(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Look up exponentials, add them, turn each share into a code, look up its logarithm; interpolation rounds down."""
    output, numbers = parameters.outputs["y"], parameters.numbers
    exponentials = lookup(x - x.amax(dim=axis, keepdim=True), parameters.tables["exp"])
    total = exponentials.sum(dim=axis, keepdim=True)
    size, scale, shift = x.shape[axis], numbers["multiplier"], numbers["shift"]
    if size < SHORT_AXIS and (x.numel() // size) % ROWS == 0:
        # rounded half up: half of the divisor is added
        quotient = ((exponentials << PLACES) + (total >> 1)) // total.clamp(min=1)
        value, shift = quotient.double() * scale, shift + PLACES
    else:
        base = 30 if int(parameters.tables["exp"].entries.max()) == 1 else 31
        # the numerator of the reciprocal fills 31 bits
        enlarge = base - math.ceil(math.log2(scale))
        value = (exponentials * floor_divide(scale << enlarge, total.clamp(min=1))).double()
        shift += enlarge
    # shares are codes of softmax's output: they index the table of logarithms
    shares = torch.round(value * 2.0**-shift).clamp(0, output.qmax - output.qmin).long()
    codes = lookup(shares, parameters.tables["log"])
    return Staged(codes, {"exp": exponentials, SHARES: shares})


@pinned()
def _exponentials(x: QParams, size: int) -> Tensor:
    codes, steps, zero = 1 << x.bits, x.float32_steps, x.zero_point.float()
    # the code whose exponential is the largest entry
    top = torch.round(steps * torch.tensor(math.log(LARGEST), dtype=torch.float32) + zero)
    values = (linspace(0, codes - 1, size) + top - codes - zero) * (1 / steps)
    return torch.exp(values).round().clamp(0, LARGEST).long()


@pinned()
def _logarithms(y: QParams, size: int) -> Tensor:
    """Return the codes of logarithms of shares from 0 to 1; share 0 has the entry of the smallest positive share."""
    shares = linspace(0, 1, size)[1:]
    # the logarithm of 0 would be infinite, so that share 0 repeats the entry after it
    found = torch.round(torch.log(shares) * y.float32_steps + y.zero_point.float())
    found = found.clamp(y.qmin, y.qmax).long()
    return torch.cat([found[:1], found])
