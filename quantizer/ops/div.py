"""Element-wise quotient."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.finish import finish
from quantizer.numerics.multipliers import compass
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters, Rescale, Staged, Table
from quantizer.numerics.quantize import centred
from quantizer.numerics.quotient import divide_exactly
from quantizer.numerics.tables import linspace, lookup
from quantizer.ops import operator

UNITS = 65535
"""What Compass's table has for 1."""
BEYOND = 2.0**40
"""More than any code."""


@operator("div")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Divide; shapes broadcast. By zero: infinity of the sign of both, 0 / 0 is NaN."""
    return a / b


@operator("div")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Divide the values of the codes exactly, round once; infinity saturates, and 0 / 0 is code 0, as in tables."""
    (first, second), out = parameters.inputs.values(), parameters.outputs["y"]
    top, bottom = torch.broadcast_tensors(centred(a, first), centred(b, second))
    signed, below = torch.where(bottom < 0, -top, top), bottom.abs().clamp(min=1)
    ratio = Fraction(float(first.scale)) / (Fraction(float(second.scale)) * Fraction(float(out.scale)))
    value = signed.double() * float(ratio) / below
    reached = value.abs() < BEYOND
    codes = divide_exactly(signed * reached, below, ratio, parameters.platform.rounding)
    far = (signed.sign() * BEYOND).long()
    codes = torch.where(reached & (bottom != 0), codes, far) + out.zero_point
    return torch.where((bottom == 0) & (top == 0), 0, codes).clamp(out.qmin, out.qmax)


@operator("div", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand 65535 over every size of a centred divisor, 0 over 0, and the multiplier that undoes it.

    Source: the Compass Optimizer's Div, in its float32 arithmetic.
    """
    parameters = default_parameters(request)
    (a, b), y = parameters.inputs.values(), parameters.outputs["y"]
    if a.steps is None or b.steps is None or y.steps is None:
        raise ValueError("compass parameters carry steps")
    size = 1 << min(b.bits, request.scheme.activation.lut_bits)
    entries = (UNITS / linspace(0, (1 << b.bits) - 1, size)).round().clamp(0, UNITS)
    entries[0] = 0
    table = Table(entries.long(), first=0, step=(1 << b.bits) // size, unit=1.0 / UNITS, bits=16)
    ratio = (y.steps * b.steps) / (a.steps * UNITS)
    mantissa, shift = compass(
        ratio, request.scheme.activation.bits, positive=request.platform.multiplier.positive_shifts
    )
    rescale = Rescale("multiplier_shift", mantissa.double(), shift.long())
    return replace(parameters, tables={"inverse": table}, rescale=rescale)


@operator("div", platform="compass")
def quantized_compass(a: Tensor, b: Tensor, *, parameters: Parameters) -> Staged:
    """Multiply by the entry of the divisor's size, with its sign; by zero the product is 0."""
    top, bottom = centred(a, parameters.inputs["a"]), centred(b, parameters.inputs["b"])
    inverse = lookup(bottom.abs(), parameters.tables["inverse"])
    return Staged(finish(torch.where(bottom < 0, -top, top) * inverse, parameters), {"inverse": inverse})
