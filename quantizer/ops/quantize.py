"""Converts real numbers to codes, where the float part of a graph ends."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import quantize as to_codes
from quantizer.ops import operator


@operator("quantize")
def reference(x: Tensor) -> Tensor:
    """Return the numbers themselves: their codes differ from them only by rounding and saturation."""
    return x


@operator("quantize")
def quantized(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Return `clamp(round(x / s) + z)` as the `quantizer` of the platform does; x is float32."""
    return to_codes(x, parameters.outputs["y"], parameters.platform.runtime_quantizer)
