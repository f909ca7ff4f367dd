"""Absolute value."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("abs")
def reference(x: Tensor) -> Tensor:
    """Return x without its sign."""
    return x.abs()


@operator("abs")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Take the magnitude of the centred code, rescale it to the output, and round once."""
    return requantize_terms({"x": centred(x, parameters.inputs["x"]).abs()}, parameters)
