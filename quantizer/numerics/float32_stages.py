"""float32 steps of quantized operators that compute in float: a float32 bias; full vectors and the tail of a row.

Every order of operations was measured on torch 2.13 (x86-64 with AVX-512), with at least 20,000 elements for each of
three kinds of scales: any value, powers of two, and scales that put a sum within 2**-23 of a tie. The orders under
`zero_point: after` were measured on torch 2.14.1 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from quantizer.core.platforms import Platform
from quantizer.numerics.fused import multiply_add
from quantizer.numerics.qparams import Parameters, QParams, Rescale

FLOAT_SUMS = ("f32_even_bias", "f32_even_inverse", "f32_stages_bias", "f32_products")
"""Variants of sums of products whose bias is a float32 number; f32_even_inverse converts it back to a code."""
TERMS = ("f32_add_in_lanes", "f32_dequantized_fused", "aligned_half_away")
MEANS = ("f32_mean_divided", "f32_mean_zpin", "f32_mean_raw", "f32_mean_inverse")
ALIGNED_BITS = 21
"""Fraction bits of the larger of two aligned ratios, which is then in [2**21, 2**22)."""
INT32 = (-(1 << 31), (1 << 31) - 1)


def inverse(scale: Tensor | float) -> Tensor:
    """Return float32 1 / scale."""
    return 1.0 / torch.as_tensor(scale, dtype=torch.float64).float()


def to_codes(values: Tensor, out: QParams, platform: Platform) -> Tensor:
    """Return codes of float32 *values*: `values * (1 / scale) + zero_point` in one float32 rounding, then half to even.

    If the platform's quantizer adds the zero point after rounding, only the product is rounded.
    """
    if adds_after(platform):
        return _clamped((values * inverse(out.scale)).round() + out.zero_point, out)
    fused = multiply_add(values, inverse(out.scale), out.zero_point.float())
    return _clamped(fused.round(), out)


def adds_after(platform: Platform) -> bool:
    """Return whether kernels that compute one element at a time add the zero point after rounding."""
    return platform.quantizer.zero_point == "after"


def rounded_alone(steps: Tensor, out: QParams, platform: Platform) -> Tensor:
    """Return the rounded codes of float32 output *steps* that a kernel computes one by one, not clamped."""
    if adds_after(platform):
        return steps.round() + out.zero_point
    return (steps + out.zero_point.float()).round()


def requantize_with_real_bias(
    acc: Tensor, parameters: Parameters, rescale: Rescale, out: QParams, axis: int | None
) -> Tensor:
    """Return codes of sums to which the bias is added as a float32 number, in the operation order of the variant.

    f32_products: if the sum was computed in parts, the exact sum is used.
    """
    if rescale.variant == "f32_products":
        scale = torch.stack([params.scale for params in parameters.inputs.values()]).prod()
        return to_codes((acc.double() * scale).float(), out, parameters.platform)
    along = [-1 if axis is not None and i == axis % acc.dim() else 1 for i in range(acc.dim())]
    mantissa = rescale.mantissa.float()
    mantissa = mantissa.reshape(along) if mantissa.dim() else mantissa
    sums, value, scale = acc, None, torch.ones(())
    if (bias := parameters.constants.get("bias")) is not None:
        codes = bias.codes.reshape(along)
        scale = bias.params.scale.float()
        scale = scale.reshape(along) if scale.dim() else scale
        # the exact sum contains the codes of the bias: out with them, the kernel adds the real bias
        sums, value = acc - codes, codes.float() * scale
    if rescale.variant == "f32_stages_bias":
        (factor,) = rescale.factors.values()
        held = sums.float() * torch.tensor(factor).float() * mantissa
        held = held if value is None else held + value
        return _clamped((held * inverse(rescale.divisor) + out.zero_point.float()).round(), out)
    if rescale.variant == "f32_even_inverse":
        kept = 0 if value is None else (value * inverse(scale)).round().double().clamp(*INT32).long()
        return _clamped(((sums + kept).float() * mantissa).round() + out.zero_point, out)
    held = sums.float()
    if value is not None:
        # per channel the kernel divides; per tensor it multiplies by the inverse, fused with the addition
        held = held + value / scale if mantissa.dim() else multiply_add(value, inverse(scale), held)
    return _clamped((held * mantissa).round() + out.zero_point, out)


def requantize_float32_terms(
    terms: Mapping[str, Tensor], parameters: Parameters, rescale: Rescale, out: QParams
) -> Tensor:
    """Return codes of a sum of centred codes, or of one operand; each is dequantized to float32 first."""
    names = [name for name in rescale.factors if name in terms]
    scales = [torch.tensor(rescale.factors[name]).float() for name in names]
    plain = [terms[name].float() * scale for name, scale in zip(names, scales, strict=True)]
    if rescale.variant == "f32_dequantized_fused":
        values = torch.stack(torch.broadcast_tensors(*plain)).sum(0) if len(plain) > 1 else plain[0]
        return to_codes(values, out, parameters.platform)
    shapes = [tuple(terms[name].shape) for name in names]
    if rescale.variant == "aligned_half_away" and len(set(shapes)) == 1:
        return _aligned([terms[name] for name in names], scales, rescale.divisor, out)
    fused = [
        # the zero point is added back, because the kernel dequantizes the codes as stored
        dequantized_fused(terms[n] + (z := parameters.inputs[n].zero_point), s, z)
        for n, s in zip(names, scales, strict=True)
    ]
    one_over = inverse(rescale.divisor)
    vector = (sum(fused[1:], fused[0]) * one_over).round() + out.zero_point
    rest = rounded_alone(sum(plain[1:], plain[0]) * one_over, out, parameters.platform)
    return _clamped(torch.where(in_vectors(shapes, parameters.platform.vector_lanes), vector, rest), out)


def dequantized_fused(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return float32 `fma(scale, code, round(-zero * scale))`: `zero * scale` is rounded separately."""
    return multiply_add(codes.float(), scale, -zero.float() * scale)


def in_vectors(shapes: list[tuple[int, ...]], lanes: int) -> Tensor:
    """Return a mask of the elements that a kernel computes in full vectors of *lanes* codes; the others are the tail.

    A row is the group of innermost axes along which each operand either runs or broadcasts. The tail is the end of a
    row that does not fill a vector.
    """
    shape = np.broadcast_shapes(*shapes)
    wide = [(1,) * (len(shape) - len(own)) + own for own in shapes]
    row, kind = 1, None
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        runs = tuple(own[axis] != 1 for own in wide)
        # a row ends where an operand starts or stops broadcasting
        if kind not in (None, runs):
            break
        row, kind = row * shape[axis], runs
    total = int(np.prod(shape, dtype=np.int64))
    return (torch.arange(total) % max(row, 1) < row // lanes * lanes).reshape(shape)


def requantize_float32_mean(sums: Tensor, counts: Tensor, rescale: Rescale, out: QParams, platform: Platform) -> Tensor:
    """Return codes of means: *sums* of centred codes over *counts* terms; the output has the input's parameters.

    Windows of one channel are computed by a kernel that ends with the rounding of the platform's quantizer.
    """
    zero, n = out.zero_point.float(), counts.float()
    if rescale.variant == "f32_mean_divided":
        return _clamped((sums.float() / n + zero).round(), out)
    if rescale.variant == "f32_mean_raw" and sums.shape[1] > 1:
        return _clamped(((sums + counts * out.zero_point).float() * (1.0 / n)).round(), out)
    if rescale.variant != "f32_mean_inverse":
        steps = sums.float() * (1.0 / n)
        alone = sums.dim() > 1 and sums.shape[1] == 1
        return _clamped(rounded_alone(steps, out, platform) if alone else (steps + zero).round(), out)
    scale = torch.tensor(rescale.divisor).float()
    # not 1 / n: the scale does not cancel in float32
    return _clamped((sums.float() * (scale / (scale * n))).round() + out.zero_point, out)


def _aligned(terms: list[Tensor], scales: list[Tensor], divisor: float, out: QParams) -> Tensor:
    """Return `sum(term * factor) >> shift`, rounded half away; factors are scale ratios of 22 bits.

    The system with this rule refuses ratios of 2**8 and more, and below 2**-14.
    """
    ratios = [float(scale / torch.tensor(divisor).float()) for scale in scales]
    _, exponent = np.frexp(max(ratios))
    shift = min(max(ALIGNED_BITS - (int(exponent) - 1), 1), 52)
    total = sum(term * round(ratio * 2.0**shift) for term, ratio in zip(terms, ratios, strict=True))
    assert isinstance(total, Tensor)
    half = 1 << (shift - 1)
    rounded = torch.where(total < 0, -((-total + half) >> shift), (total + half) >> shift)
    return (rounded + out.zero_point).clamp(out.qmin, out.qmax)


def _clamped(rounded: Tensor, out: QParams) -> Tensor:
    return rounded.nan_to_num(nan=0.0).clamp(out.qmin, out.qmax).long()
