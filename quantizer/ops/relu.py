"""Rectified linear unit."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("relu")
def reference(x: Tensor) -> Tensor:
    """Return the larger of x and 0."""
    return x.clamp(min=0)


@operator("relu")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Clip at the zero point, rescale to the output, and round once."""
    return requantize_terms({"x": centred(x, parameters.inputs["x"]).clamp(min=0)}, parameters)
