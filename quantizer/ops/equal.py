"""Whether the elements of two tensors are equal, one by one."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import dequantize
from quantizer.ops import operator


@operator("equal")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Return where both are equal; shapes broadcast."""
    return a == b


@operator("equal")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Compare the values of the codes, which float64 holds exactly: a float32 scale has 24 bits, a centred code 17."""
    left, right = (dequantize(codes, parameters.inputs[name]) for name, codes in (("a", a), ("b", b)))
    return (left == right).long()
