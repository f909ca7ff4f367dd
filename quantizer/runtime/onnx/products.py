"""Sums of products: convolutions, matrices, Einstein sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.elementwise import UNSIGNED, by_numpy
from quantizer.runtime.onnx.kernels import Ours, kernel, mapped, run_ours

SIDES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
Sizes = Sequence[int]


@lru_cache(maxsize=4096)
def windows(
    sizes: Sizes,
    kernel_shape: Sizes,
    strides: Sizes | None,
    dilations: Sizes | None,
    pads: Sizes | None,
    auto_pad: str,
    *,
    cut: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return strides, dilations and pads (all before, then all after) of windows over *sizes*, as auto_pad decides.

    cut: if windows under SAME do not reach every place, half of the places left out are at the start, so that a pad is
    negative. Source: the ONNX operator Conv: SAME makes ceil(size / stride) windows; an odd rest goes to the end for
    SAME_UPPER. If windows leave places out, convolutions of ONNX Runtime and of the reference still begin at the first
    place, their pools do not.
    """
    rank = len(sizes)
    steps, holes = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    if auto_pad not in SIDES:
        raise UnsupportedError(f"auto_pad={auto_pad!r}: must be one of {', '.join(SIDES)}.")
    given = tuple(pads or (0,) * (2 * rank))
    if not len(kernel_shape) == len(steps) == len(holes) == rank or len(given) != 2 * rank:
        raise UnsupportedError(
            f"{rank} spatial axes: kernel, strides, dilations and pads must have one entry for each."
        )
    if min((*steps, *holes, *kernel_shape), default=1) < 1 or min(given, default=0) < 0:
        raise UnsupportedError("kernel, strides and dilations must be at least 1, pads not negative.")
    if auto_pad == "NOTSET":
        return steps, holes, given
    if auto_pad == "VALID":
        return steps, holes, (0,) * (2 * rank)
    # the padding that ceil(size / stride) windows need, summed over both sides
    totals = [
        (-(-size // step) - 1) * step + (k - 1) * hole + 1 - size
        for size, k, step, hole in zip(sizes, kernel_shape, steps, holes, strict=True)
    ]
    if cut and min(totals, default=0) < 0:
        # truncated, as integer division in C++ truncates negative numbers
        before = tuple(math.trunc((t + (auto_pad == "SAME_LOWER")) / 2) for t in totals)
        return steps, holes, (*before, *(t - b for t, b in zip(totals, before, strict=True)))
    small, large = tuple(max(0, t) // 2 for t in totals), tuple(max(0, t) - max(0, t) // 2 for t in totals)
    return steps, holes, (*small, *large) if auto_pad == "SAME_UPPER" else (*large, *small)


@mapped("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: Sizes | None = None,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Ours | None:
    """Map to the registry's convolution of one, two or three axes; a group for each channel is a depthwise one."""
    rank = x.dim() - 2
    if rank not in (1, 2, 3) or w.dim() != x.dim():
        raise UnsupportedError(
            f"Conv of shapes {list(x.shape)} and {list(w.shape)}: must have one to three spatial axes."
        )
    _kernel_is(kernel_shape, w)
    stride, dilation, padding = windows(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    operands = {"x": x, "weight": w} | ({} if b is None else {"bias": b})
    attrs: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    # one filter or more for each channel
    if rank == 2 and group == x.shape[1] > 1 and w.shape[1] == 1:
        return Ours("depthwise_conv2d", operands, attrs)
    return Ours(f"conv{rank}d", operands, attrs | {"groups": group})


def _kernel_is(kernel_shape: Sizes | None, weight: Tensor) -> None:
    if kernel_shape is not None and tuple(kernel_shape) != tuple(weight.shape[2:]):
        raise UnsupportedError(f"kernel_shape={list(kernel_shape)}: must be the weight's, {list(weight.shape[2:])}.")


@mapped("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: Sizes | None = None,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
    output_padding: Sizes | None = None,
    output_shape: Sizes | None = None,
) -> Ours | None:
    """Map to the registry's conv_transpose2d if the result's shape follows from pads that crop less than the window."""
    if x.dim() != 4 or output_shape is not None or auto_pad not in ("NOTSET", "VALID") or not x.is_floating_point():
        return None
    _kernel_is(kernel_shape, w)
    stride, dilation, padding = windows(x.shape[2:], w.shape[2:], strides, dilations, pads, "NOTSET")
    attrs = {
        "stride": stride,
        "padding": padding,
        "output_padding": tuple(output_padding or (0, 0)),
        "dilation": dilation,
        "groups": group,
    }
    # ONNX has [c, o / groups, kh, kw]; the registry has the output channels first
    operands = {"x": x, "weight": w.transpose(0, 1)} | ({} if b is None else {"bias": b})
    return Ours("conv_transpose2d", operands, attrs)


@kernel("ConvTranspose")
def conv_transpose_any(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: Sizes | None = None,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
    output_padding: Sizes | None = None,
    output_shape: Sizes | None = None,
) -> Tensor:
    """Spread each element over a window; pads are cut off the full sum, output_padding is added at its end.

    Source: the ONNX operator ConvTranspose: output_shape and SAME say how much is cut, the odd rest at the end for
    SAME_UPPER and at the start otherwise. If the full sum is smaller than the wanted output, nothing is cut, as in ONNX
    Runtime: SAME leaves it unchanged, and output_shape adds zeros at its end.
    """
    rank = x.dim() - 2
    if rank not in (1, 2, 3):
        raise UnsupportedError(f"ConvTranspose of shape {list(x.shape)}: must have one to three spatial axes.")
    _kernel_is(kernel_shape, w)
    stride, dilation, padding = windows(x.shape[2:], w.shape[2:], strides, dilations, pads, "NOTSET")
    extra = tuple(output_padding or (0,) * rank)
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    # without bias: cropped and padded places must get it only once
    full = transposed(x, w, None, stride=stride, groups=group, dilation=dilation)
    # F.pad counts from the last axis
    full = F.pad(full, [size for amount in reversed(extra) for size in (0, amount)])
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = output_shape or [size * step for size, step in zip(x.shape[2:], stride, strict=True)]
        lacking = [want - have for have, want in zip(full.shape[2:], wanted[-rank:], strict=True)]
        if output_shape is not None:
            full = F.pad(full, [size for amount in reversed(lacking) for size in (0, max(0, amount))])
        totals = [max(0, -amount) for amount in lacking]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        padding = (*small, *large) if auto_pad == "SAME_UPPER" else (*large, *small)
    left = [size - padding[i] - padding[i + rank] for i, size in enumerate(full.shape[2:])]
    if min(left) < 1:
        raise UnsupportedError(f"ConvTranspose: pads {list(padding)} of {list(full.shape[2:])}: must leave something.")
    cut = [-padding[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]
    y = F.pad(full, cut)
    return y if b is None else y + b.reshape([-1, *[1] * rank])


@mapped("MatMul")
def matmul(a: Tensor, b: Tensor) -> Ours | None:
    """Map to the registry's matmul, for matrices with broadcasting leading axes."""
    fits = a.is_floating_point() and a.dtype == b.dtype and min(a.dim(), b.dim()) >= 2 and a.numel() and b.numel()
    return Ours("matmul", {"a": a, "b": b}, {}) if fits else None


@kernel("MatMul")
def matmul_broadcast(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of matrices by numpy's rules, of integers too."""
    if a.dtype in UNSIGNED:
        return by_numpy(lambda left, right: left @ right, a, b)
    return torch.matmul(a, b)


@mapped("Gemm")
def fully_connected(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> Ours | None:
    """Map to the registry's fully_connected, if alpha and beta are 1 and c is one row."""
    plain = a.is_floating_point() and alpha == 1 and (c is None or (beta == 1 and c.dim() == 1)) and not transA
    # fully_connected has weights [o, c]
    weight = b if transB else b.T
    if not plain or (c is not None and c.shape[0] != weight.shape[0]) or not (a.numel() and b.numel()):
        return None
    operands = {"x": a, "weight": weight} | ({} if c is None else {"bias": c})
    return Ours("fully_connected", operands, {})


@kernel("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> Tensor:
    """Return alpha * A' * B' + beta * C; C broadcasts to the product, and a beta of 0 leaves out even a NaN in C."""
    product = (a.T if transA else a) @ (b.T if transB else b)
    if a.is_floating_point():
        y = product if alpha == 1 else alpha * product
        # 0 * NaN would be NaN
        return y if c is None or beta == 0 else y + (c if beta == 1 else beta * c)
    if alpha != 1 or beta != 1:
        raise UnsupportedError("Gemm of integers: alpha and beta must be 1.")
    return product if c is None else product + c


@kernel("Einsum")
def einsum(*operands: Tensor, equation: str) -> Tensor:
    """Sum products over the letters that the right side lacks."""
    return torch.einsum(equation.replace(" ", ""), *operands)


@kernel("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """Multiply codes less their zero points in int32; A may have one for each row, B one for each column."""
    left, right = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        left = left - (
            a_zero.to(torch.int32).unsqueeze(-1) if a_zero.dim() == 1 and a_zero.numel() > 1 else a_zero.to(torch.int32)
        )
    if b_zero is not None:
        right = right - b_zero.to(torch.int32)
    return torch.matmul(left, right)


@kernel("ConvInteger")
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **attrs: Any
) -> Tensor:
    """Convolve codes less their zero points in int32; padding is 0, and each filter may have its own zero point."""
    return exact_conv(_centred(x, x_zero, ()), _centred(w, w_zero, (-1, *[1] * (w.dim() - 1))), **attrs).to(torch.int32)


def _centred(codes: Tensor, zero: Tensor | None, along: Sizes) -> Tensor:
    """Return code - zero point as float64, which holds every sum of a kernel below 2**53 exactly."""
    if zero is None:
        return codes.double()
    return codes.double() - (zero.double().reshape(()) if zero.numel() == 1 else zero.double().reshape(list(along)))


def exact_conv(x: Tensor, w: Tensor, b: Tensor | None = None, **attrs: Any) -> Tensor:
    """Return the registry's convolution of whole numbers in float64."""
    found = conv(x, w, b, **attrs)
    assert found is not None
    return run_ours(found)


def requantized(sums: Tensor, factor: Tensor, y_scale: Tensor, y_zero: Tensor) -> Tensor:
    """Return codes: sums times a factor over the output's scale in float32, rounded half to even, plus zero point.

    The standard leaves the arithmetic open; this is the float32 arithmetic of ONNX Runtime's kernels.
    """
    # one float32 factor, then one product: two roundings before the one to an integer
    scaled = torch.round(sums.float() * (factor.float() / y_scale.float()))
    limits = torch.iinfo(y_zero.dtype)
    return (scaled + y_zero.float()).clamp(limits.min, limits.max).to(y_zero.dtype)


@kernel("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
    **attrs: Any,
) -> Tensor:
    """Add products of centred codes and an int32 bias exactly, then requantize; each filter may have its own scale."""
    along = (-1, *[1] * (w.dim() - 1))
    sums = exact_conv(_centred(x, x_zero, ()), _centred(w, w_zero, along), None if b is None else b.double(), **attrs)
    factor = (
        # along the result's channels, axis 1
        x_scale * w_scale.reshape([1, -1, *[1] * (x.dim() - 2)])
        if w_scale.numel() > 1
        else x_scale * w_scale.reshape(())
    )
    return requantized(sums, factor, y_scale, y_zero)


@kernel("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """Multiply centred codes exactly, then requantize; A may have parameters for each row, B for each column."""
    if y_zero.dtype not in (torch.uint8, torch.int8) or y_scale.numel() > 1:
        raise UnsupportedError("QLinearMatMul: the result must be 8-bit integers with one scale.")
    sums = _centred(a, a_zero, _along_products(a_zero, (-1, 1))) @ _centred(b, b_zero, _along_products(b_zero, (1, -1)))
    left, right = (
        scale.reshape(_along_products(scale, vector) if scale.numel() > 1 else ())
        for scale, vector in ((a_scale, (-1, 1)), (b_scale, (1, -1)))
    )
    return requantized(sums, left * right, y_scale, y_zero)


def _along_products(values: Tensor, vector: Sizes) -> Sizes:
    """Return the shape of scales or zero points of products: *vector* if they have one axis, else their own."""
    return vector if values.dim() <= 1 else tuple(values.shape)
