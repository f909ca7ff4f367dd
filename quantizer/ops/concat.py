"""Concatenation along one axis."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_each_term
from quantizer.ops import operator


@operator("concat")
def reference(a: Tensor, b: Tensor, c: Tensor | None = None, d: Tensor | None = None, *, axis: int) -> Tensor:
    """Put the operands one after the other along *axis*."""
    return torch.cat([part for part in (a, b, c, d) if part is not None], dim=axis)


@operator("concat")
def quantized(
    a: Tensor, b: Tensor, c: Tensor | None = None, d: Tensor | None = None, *, parameters: Parameters, axis: int
) -> Tensor:
    """Rescale every operand to the output's scale, rounding each once."""
    operands = {"a": a, "b": b, "c": c, "d": d}
    terms = {name: centred(x, parameters.inputs[name]) for name, x in operands.items() if x is not None}
    return torch.cat(list(requantize_each_term(terms, parameters).values()), dim=axis)
