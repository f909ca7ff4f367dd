"""Takes each element from one of two tensors, as a condition says."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_each_term
from quantizer.ops import operator


@operator("where")
def reference(a: Tensor, b: Tensor, condition: Tensor) -> Tensor:
    """Select a where the condition is not 0, else b; shapes broadcast."""
    return torch.where(condition != 0, a, b)


@operator("where")
def quantized(a: Tensor, b: Tensor, condition: Tensor, *, parameters: Parameters) -> Tensor:
    """Requantize both operands to the output, then take one of each pair."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    codes = requantize_each_term(terms, parameters)
    return torch.where(condition != 0, codes["a"], codes["b"])
