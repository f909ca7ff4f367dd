"""Element-wise quotient."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.quotient import divide_exactly
from quantizer.ops import operator

BEYOND = 2.0**40
"""More than any code."""


@operator("div")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Divide; shapes broadcast. x / 0 is infinite with the sign of both, 0 / 0 is NaN."""
    return a / b


@operator("div")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Divide the values of the codes exactly, round once; infinity saturates, and 0 / 0 is code 0, as in tables."""
    (first, second), out = parameters.inputs.values(), parameters.outputs["y"]
    top, bottom = torch.broadcast_tensors(centred(a, first), centred(b, second))
    # the sign goes into the dividend; a divisor of 0 becomes 1 for now, and its results are replaced below
    signed, below = torch.where(bottom < 0, -top, top), bottom.abs().clamp(min=1)
    ratio = Fraction(float(first.scale)) / (Fraction(float(second.scale)) * Fraction(float(out.scale)))
    # only an estimate: quotients beyond every code are not divided exactly, which could leave int64
    value = signed.double() * float(ratio) / below
    reached = value.abs() < BEYOND
    codes = divide_exactly(signed * reached, below, ratio, parameters.platform.rounding)
    # saturates in either direction; 0 / 0 is set at the end
    far = (signed.sign() * BEYOND).long()
    codes = torch.where(reached & (bottom != 0), codes, far) + out.zero_point
    return torch.where((bottom == 0) & (top == 0), 0, codes).clamp(out.qmin, out.qmax)
