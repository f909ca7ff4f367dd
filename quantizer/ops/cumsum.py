"""Running sums along one axis."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.ops import operator


@operator("cumsum")
def reference(x: Tensor, *, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    """Add up along *axis* up to each element, from the end if *reverse*; without the element itself if *exclusive*."""
    ordered = x.flip(axis) if reverse else x
    if exclusive:
        zero = torch.zeros_like(ordered.narrow(axis, 0, 1))
        ordered = torch.cat([zero, ordered.narrow(axis, 0, x.shape[axis] - 1)], dim=axis)
    total = ordered.cumsum(dim=axis)
    return total.flip(axis) if reverse else total


@operator("cumsum")
def accumulate(x: Tensor, *, parameters: Parameters, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    """Add up centred codes along the axis exactly. An exclusive sum does not include the element itself."""
    codes = centred(x, parameters.inputs["x"])
    ordered = codes.flip(axis) if reverse else codes
    # exact on integers; in float the difference would round, so that the reference shifts instead
    total = ordered.cumsum(dim=axis) - ordered * int(exclusive)
    return total.flip(axis) if reverse else total


@operator("cumsum")
def quantized(x: Tensor, *, parameters: Parameters, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    """Bring each exact sum to the output's scale, round once."""
    sums = accumulate(x, parameters=parameters, axis=axis, exclusive=exclusive, reverse=reverse)
    return requantize_terms({"x": sums}, parameters)
