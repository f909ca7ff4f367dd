"""What the chip computes in its own way; everything else is quantizer's arithmetic under the platform's settings."""

from dataclasses import replace

from torch import Tensor

from quantizer.numerics import Parameters, Request, default_parameters
from quantizer.numerics.ratio_to_multiplier import fixed_point
from quantizer.ops import operator

BITS = 16
"""Of the activation unit's multiplier; sums are multiplied by 15 bits."""


@operator("relu", kind="quantize", platform="tiny_chip")
def relu_numbers(request: Request) -> Parameters:
    """Provide the multiplier of 16 bits that is nearest to the ratio of scales, and its shift to the right."""
    parameters = default_parameters(request)
    mantissa, shift = fixed_point(parameters.inputs["x"].scale / parameters.outputs["y"].scale, BITS)
    return replace(parameters, rescale=None, numbers={"multiplier": int(mantissa), "shift": int(shift)})


@operator("relu", kind="quantized", platform="tiny_chip")
def relu(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply and shift; where a bit that is shifted out was 1, the last bit that stays becomes 1 (rounding to odd)."""
    numbers, into, out = parameters.numbers, parameters.inputs["x"], parameters.outputs["y"]
    product = (x - into.zero_point).clamp(min=0) * numbers["multiplier"] << max(-numbers["shift"], 0)
    shift = max(numbers["shift"], 0)
    # the bits that the shift drops; product is never negative here
    lost = product & ((1 << shift) - 1)
    codes = (product >> shift | (lost != 0)) + out.zero_point
    return codes.clamp(out.qmin, out.qmax)
