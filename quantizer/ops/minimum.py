"""Element-wise minimum."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_each_term
from quantizer.ops import operator


@operator("minimum")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Take the smaller one; shapes broadcast."""
    return torch.minimum(a, b)


@operator("minimum")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Requantize both operands to the output and take the smaller. This is right because rounding is monotone."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    codes = requantize_each_term(terms, parameters)
    return torch.minimum(codes["a"], codes["b"])
