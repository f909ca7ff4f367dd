"""Sum along some axes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.reductions import folded
from quantizer.numerics.requantize_accumulator import requantize_reduction
from quantizer.ops import operator


@operator("reduce_sum")
def reference(x: Tensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Add up along *axes*, which stay with size 1 if *keepdims*."""
    return x.sum(dim=axes, keepdim=keepdims)


@operator("reduce_sum")
def accumulate(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Sum centred codes exactly, one axis after the other."""
    return folded(torch.sum, centred(x, parameters.inputs["x"]), axes, keepdims=keepdims)


@operator("reduce_sum")
def quantized(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Bring the exact sum to the output's scale, round once."""
    sums = accumulate(x, parameters=parameters, axes=axes, keepdims=keepdims)
    return requantize_reduction(sums, math.prod(x.shape[axis] for axis in axes), parameters)
