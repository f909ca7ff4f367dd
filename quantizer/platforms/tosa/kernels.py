"""Integer forwards of TOSA that differ from the generic arithmetic."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("clip", kind="quantized", platform="tosa")
def clip(x: Tensor, *, parameters: Parameters, low: float, high: float) -> Tensor:
    """Rescale the code to the output's scale, then clamp it: RESCALE, CLAMP."""
    numbers, zero = parameters.numbers, int(parameters.outputs["y"].zero_point)
    codes = requantize_terms({"x": centred(x, parameters.inputs["x"])}, parameters)
    # the bounds are provided as centred codes
    return codes.clamp(numbers["least"] + zero, numbers["most"] + zero)
