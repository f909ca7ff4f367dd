"""Compass's sine and cosine of more than 8 bits: a table of one period, read at a multiple of the code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.platform_settings import NARROW_BITS
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Table
from quantizer.numerics.quantize import centred
from quantizer.numerics.ratio_to_multiplier import float32_multiplier
from quantizer.numerics.request import Request
from quantizer.numerics.rounding import round_tensor
from quantizer.numerics.tables import linspace, lookup, tabulated

PERIOD = torch.tensor(2 * math.pi, dtype=torch.float32).item()


def quantize(request: Request, f: Callable[[Tensor], Tensor]) -> Parameters:
    """Provide a table over the input's codes; above 8 bits a table over [0, 2 pi], and the multiplier to it.

    Source: the Compass Optimizer's Sine and Cosine. The table holds both ends of the period, so that its entries lie a
    little farther apart than the places that read them.
    """
    bits = request.scheme.activation.bits
    if bits <= NARROW_BITS:
        return tabulated(request, f)
    parameters = default_parameters(request)
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    size = 1 << min(bits, request.scheme.activation.lut_bits)
    values = f(linspace(0, PERIOD, size)) * y.float32_steps
    entries = round_tensor(values.double(), request.platform.rounding).clamp(y.qmin, y.qmax).long()
    # from a code to an entry: size entries are one period
    ratio = torch.tensor(size / 2 / math.pi, dtype=torch.float32) / x.float32_steps
    multiplier, shift = float32_multiplier(ratio, bits)
    table = Table(entries, first=0, step=1, unit=float(y.scale), bits=y.dtype.bits)
    return replace(parameters, tables={"period": table}, numbers={"multiplier": int(multiplier), "shift": int(shift)})


def quantized(x: Tensor, parameters: Parameters) -> Tensor:
    """Look the code up; for more than 8 bits, look up its multiple within the period."""
    table = parameters.tables.get("period")
    if table is None:
        return lookup(x, parameters.tables["lut"])
    (inp,) = parameters.inputs.values()
    factor = parameters.numbers["multiplier"] * 2.0 ** -parameters.numbers["shift"]
    place = torch.round(centred(x, inp).double() * factor).long()
    # the number of entries is a power of two, so that the mask is the remainder, also of negative places
    return table.entries[place & (table.entries.numel() - 1)]
