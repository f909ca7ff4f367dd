"""Element-wise sum."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.finish import finish_sum
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("add")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Add; shapes broadcast."""
    return a + b


@operator("add")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Bring both operands to one scale, add, round once."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    return finish_sum(terms, parameters)
