"""The vendor's own integer kernel of a built-in operator, on the platform of its chip; quantizer's stays everywhere else."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import Parameters
from quantizer.ops import operator


@operator("relu", version="1.0", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Cut at the zero point, multiply, shift with ties to even, saturate: int64 throughout."""
    given, out, rescale = parameters.inputs["x"], parameters.outputs["y"], parameters.rescale
    product = (x - given.zero_point).clamp(min=0) * rescale.mantissa.long()
    shift = rescale.shift.long()
    down = product >> shift  # floor, also of negative numbers
    twice = (product - (down << shift)) * 2
    # twice the rest against one unit: above a half, or a half with an odd floor
    up = (twice > (1 << shift)) | ((twice == (1 << shift)) & (down % 2 == 1))
    return (down + up.long() + out.zero_point).clamp(out.dtype.min, out.dtype.max).to(torch.int64)
