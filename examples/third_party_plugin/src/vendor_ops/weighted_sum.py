"""First operand plus a whole multiple of the second."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics import Parameters, centred, requantize_terms
from quantizer.ops import operator


@operator("weighted_sum")
def reference(a: Tensor, b: Tensor, *, alpha: int) -> Tensor:
    """Add alpha times the second operand; shapes broadcast."""
    return a + alpha * b


@operator("weighted_sum")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters, alpha: int) -> Tensor:
    """Weigh the centred codes, bring both operands to one scale, add, round once."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": alpha * centred(b, parameters.inputs["b"])}
    return requantize_terms(terms, parameters)
