"""Negation."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("negative")
def reference(x: Tensor) -> Tensor:
    """Return -x."""
    return -x


@operator("negative")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Negate the centred code, rescale it to the output, and round once. Equal scales need no rounding."""
    return requantize_terms({"x": -centred(x, parameters.inputs["x"])}, parameters)
