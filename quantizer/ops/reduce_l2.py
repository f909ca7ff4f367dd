"""Root of the sum of squares along some axes."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.kernels import limit
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.reductions import folded
from quantizer.numerics.roots import rounded_root
from quantizer.ops import operator


@operator("reduce_l2")
def reference(x: Tensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Take the root of the sum of squares along *axes*, which stay with size 1 if *keepdims*."""
    return (x * x).sum(dim=axes, keepdim=keepdims).sqrt()


@operator("reduce_l2")
def accumulate(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Sum squares of centred codes exactly, one axis after the other."""
    return folded(torch.sum, centred(x, parameters.inputs["x"]) ** 2, axes, keepdims=keepdims)


@operator("reduce_l2")
def quantized(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Take the root of the exact sum in steps of the output, round once."""
    platform, own, out = parameters.platform, parameters.inputs["x"], parameters.outputs["y"]
    sums = accumulate(x, parameters=parameters, axes=axes, keepdims=keepdims)
    held = limit(sums, parameters.accumulator_bits, platform.accumulator.overflow)
    codes = rounded_root(held, Fraction(float(own.scale)) / Fraction(float(out.scale)), platform.rounding)
    return (codes + out.zero_point).clamp(out.qmin, out.qmax)
