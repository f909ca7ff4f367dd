"""Whether each element of one tensor is smaller than the other tensor's."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import dequantize
from quantizer.ops import operator


@operator("less")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Return where a is smaller than b; shapes broadcast."""
    return a < b


@operator("less")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Compare the values of the codes, which float64 holds exactly: a float32 scale has 24 bits, a centred code 17."""
    left, right = (dequantize(codes, parameters.inputs[name]) for name, codes in (("a", a), ("b", b)))
    return (left < right).long()
