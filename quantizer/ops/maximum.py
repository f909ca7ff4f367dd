"""Element-wise maximum."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_each_term
from quantizer.ops import operator


@operator("maximum")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Take the larger one; shapes broadcast."""
    return torch.maximum(a, b)


@operator("maximum")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Requantize both operands to the output and take the larger. This is right because rounding is monotone."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    codes = requantize_each_term(terms, parameters)
    return torch.maximum(codes["a"], codes["b"])
