"""Element-wise product."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("mul")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Multiply; shapes broadcast."""
    return a * b


@operator("mul")
def accumulate(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply integers exactly."""
    return centred(a, parameters.inputs["a"]) * centred(b, parameters.inputs["b"])
