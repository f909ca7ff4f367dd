"""Mean of each window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.kernels import pool_sum
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_mean
from quantizer.numerics.windows import pool_padding, window_slices
from quantizer.ops import operator

Pair = tuple[int, int]
Four = tuple[int, int, int, int]


@operator("avg_pool2d")
def reference(
    x: Tensor, *, kernel: Pair, stride: Pair, padding: Four, ceil_mode: bool, count_include_pad: bool
) -> Tensor:
    """Average each window of x [n, c, h, w] over all its places, or over its places inside x."""
    (top, bottom), (left, right) = pool_padding(x.shape[2:], kernel, stride, padding, ceil_mode=ceil_mode)
    # a divisor of 1 makes torch's mean a sum
    sums = F.avg_pool2d(F.pad(x, (left, right, top, bottom)), kernel, stride, divisor_override=1)
    if count_include_pad:
        return sums / (kernel[0] * kernel[1])
    return sums / F.avg_pool2d(
        # sums of ones count the places inside x; one image and one channel are enough
        F.pad(torch.ones_like(x[:1, :1]), (left, right, top, bottom)),
        kernel,
        stride,
        divisor_override=1,
    )


@operator("avg_pool2d")
def accumulate(
    x: Tensor,
    *,
    parameters: Parameters,
    kernel: Pair,
    stride: Pair,
    padding: Four,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    """Sum the centred codes of each window; padding is the zero point, so zero."""
    around = pool_padding(x.shape[2:], kernel, stride, padding, ceil_mode=ceil_mode)
    return pool_sum(centred(x, parameters.inputs["x"]), kernel, stride=stride, padding=around)


@operator("avg_pool2d")
def quantized(
    x: Tensor,
    *,
    parameters: Parameters,
    kernel: Pair,
    stride: Pair,
    padding: Four,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    """Divide the exact sum by the places that count, round once; f32_dequantized: add and divide in float32.

    f32_mean_inverse: windows that may extend past the end go to torch's own kernel.
    """
    named: Any = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    variant = None if parameters.rescale is None else parameters.rescale.variant
    if variant == "f32_dequantized":
        return _dequantized(x, parameters, count_include_pad=count_include_pad, **named)
    if variant == "f32_mean_inverse" and ceil_mode and parameters.rescale is not None:
        parameters = replace(parameters, rescale=replace(parameters.rescale, variant="f32_mean_zpin"))
    sums = accumulate(x, parameters=parameters, count_include_pad=count_include_pad, **named)
    if count_include_pad:
        return requantize_mean(sums, kernel[0] * kernel[1], parameters)
    (top, bottom), (left, right) = pool_padding(x.shape[2:], kernel, stride, padding, ceil_mode=ceil_mode)
    inside = torch.zeros(x.shape[2] + top + bottom, x.shape[3] + left + right, dtype=torch.int64)
    inside[top : top + x.shape[2], left : left + x.shape[3]] = 1
    # how many places of each window lie inside x
    counts = sum(inside[index[2:]] for index in window_slices(list(inside.shape), kernel, stride))
    return requantize_mean(sums, counts, parameters)


def _dequantized(
    x: Tensor,
    parameters: Parameters,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Four,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    """Add dequantized float32 values place by place, divide by the count and by the scale, add the zero point, round.

    One window that is the whole image, without padding, goes to the global kernel: the exact sum times one multiplier.
    """
    params, output = parameters.inputs["x"], parameters.outputs["y"]
    if kernel == tuple(x.shape[2:]) and not any(padding):
        sums = centred(x, params).sum(dim=(2, 3), keepdim=True)
        multiplier = params.scale.float() / (output.scale.float() * (kernel[0] * kernel[1]))
        codes = torch.round(sums.float() * multiplier).long() + output.zero_point
        return codes.clamp(output.qmin, output.qmax)
    (top, bottom), (left, right) = pool_padding(x.shape[2:], kernel, stride, padding, ceil_mode=ceil_mode)
    values = F.pad(centred(x, params).float() * params.scale.float(), (left, right, top, bottom))
    inside = F.pad(torch.ones(1, 1, *x.shape[2:]), (left, right, top, bottom))
    places = window_slices(list(values.shape[2:]), kernel, stride)
    # place by place, in the order of the kernel's loop: float32 sums depend on it
    total = sum((values[index] for index in places), torch.zeros(()))
    count = kernel[0] * kernel[1] if count_include_pad else sum((inside[index] for index in places), torch.zeros(()))
    rounded = torch.round(total / count / output.scale.float() + output.zero_point)
    return rounded.long().clamp(output.qmin, output.qmax)
