"""Negation."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.finish import finish_sum
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("negative")
def reference(x: Tensor) -> Tensor:
    """Return -x."""
    return -x


@operator("negative")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Negate the centred code, bring it to the output's scale, round once; where the scales are equal, nothing is rounded."""
    return finish_sum({"x": -centred(x, parameters.inputs["x"])}, parameters)
