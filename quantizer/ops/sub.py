"""Element-wise difference."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("sub")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Subtract; shapes broadcast."""
    return a - b


@operator("sub")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Bring both operands to one scale, subtract, round once."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    return requantize_terms(terms, parameters, minus=("b",))
