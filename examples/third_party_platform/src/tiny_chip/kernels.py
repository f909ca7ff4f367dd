"""What the chip computes in its own way; everything else is quantizer's arithmetic under the platform's settings."""

import torch
from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("relu", platform="tiny_chip")
def quantized_tiny_chip(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply by the integer, add half of what is shifted out, shift the magnitude: ties go away from zero."""
    rescale, into, out = parameters.rescale, parameters.inputs["x"], parameters.outputs["y"]
    multiplier, shift = rescale.mantissa.long(), rescale.shift.long()
    product = (x - into.zero_point).clamp(min=0) * multiplier
    half = torch.where(shift > 0, 1 << (shift - 1).clamp(min=0), 0)
    codes = ((product + half) >> shift) + out.zero_point
    return codes.clamp(out.qmin, out.qmax)
