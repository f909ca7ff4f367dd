"""Element-wise sum."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("add")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Add; shapes broadcast."""
    return a + b


@operator("add")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Bring both operands to one scale, add, round once."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    return requantize_terms(terms, parameters)
