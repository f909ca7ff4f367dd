"""From a range to a scale and a zero point, as each platform's parameter rule has it."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.dtypes import DType, integer
from quantizer.core.errors import GraphError
from quantizer.core.platforms import FixedOutput, ParameterRule
from quantizer.core.schemes import ActivationPart, WeightPart
from quantizer.numerics.qparams import QParams


@functools.lru_cache(maxsize=4096)
def activation_params(low: float, high: float, part: ActivationPart, rule: ParameterRule, *, signed: bool) -> QParams:
    """Return the parameters of an activation whose calibrated range is [low, high].

    The range is widened to contain 0. Raises GraphError when an end is not finite or low > high.
    Source: DESIGN 5; Compass: `scale = q_range / f_range` in float32; ONNX Runtime: `(max - min) / (qmax - qmin)`.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise GraphError(f"range [{low}, {high}]: both ends must be finite, the first not above the second.")
    symmetric, restricted = part.symmetry == "symmetric", part.range == "restricted"
    if part.bits > rule.symmetric_above_bits and not symmetric:
        symmetric, restricted = True, True
    ends = torch.tensor([min(low, 0.0), max(high, 0.0)], dtype=torch.float64)
    return _params(
        ends[:1], ends[1:], integer(part.bits, signed=signed), part.bits, rule,
        symmetric=symmetric, restricted=restricted, power_of_two=part.rule == "power_of_two", axis=None,
    )  # fmt: skip


def weight_params(
    weights: Tensor, part: WeightPart, rule: ParameterRule, axis: int | None, *, group: int | None = None
) -> QParams:
    """Return the parameters of *weights* from their extrema, one pair per slice along *axis* or one in all.

    weights: float, any shape. axis: the channel axis, None for one scale for the tensor. group: that many neighbouring
    channels share their parameters (Compass), whatever the granularity; 1 is per channel.
    """
    size = group if group is not None else 1 if part.granularity == "channel" else None
    if axis is None or size is None:
        flat, axis = weights.double().reshape(1, -1), None
    else:
        flat = weights.double().movedim(axis, 0).flatten(1)
    low, high = flat.amin(1).clamp(max=0.0), flat.amax(1).clamp(min=0.0)
    if size is not None and size > 1:
        low = torch.cat([c.amin().expand(len(c)) for c in low.split(size)])
        high = torch.cat([c.amax().expand(len(c)) for c in high.split(size)])
    return _params(
        low, high, integer(part.bits, signed=rule.weight_sign == "signed"), part.bits, rule,
        symmetric=part.symmetry == "symmetric", restricted=part.range == "restricted",
        power_of_two=part.rule == "power_of_two", axis=axis,
    )  # fmt: skip


def holding_bias(params: QParams, bias: Tensor, factor: Tensor, bits: int) -> QParams:
    """Return weight parameters whose scale is large enough for the codes of *bias* to fit *bits* bits.

    bias: float32, one per channel. factor: the scale of the input. A scale grows until `factor * scale` is a ten-thousandth
    above `2 * |bias| / (2**bits - 2)`, in the float types of ONNX Runtime's quantizer: float32 up to the division per
    channel, float64 per tensor.
    """
    largest = bias.float().abs() if params.scale.dim() else bias.double().abs().amax()
    smallest = (2.0 * largest * 1.0001).double() / float((1 << bits) - 2)
    product = factor * params.scale
    grown = (params.scale * (smallest / product)).float().double()
    return replace(params, scale=torch.where(product < smallest, grown, params.scale))


def bias_params(scale: Tensor, steps: Tensor | None, bits: int, axis: int | None) -> QParams:
    """Return the parameters of a bias whose scale is the product of the scales it is added under."""
    dtype = integer(bits, signed=True)
    return QParams(
        dtype, scale, torch.zeros(scale.shape, dtype=torch.int64), -(1 << (bits - 1)), (1 << (bits - 1)) - 1,
        axis=axis if scale.dim() else None, steps=steps,
    )  # fmt: skip


def fixed_params(fixed: FixedOutput, bits: int, *, signed: bool) -> QParams:
    """Return output parameters that a platform fixes, whatever the calibrated range."""
    signed = signed if fixed.signed is None else fixed.signed
    dtype = integer(bits, signed=signed)
    zero = {"min": dtype.min, "middle": 0}.get(str(fixed.zero_point), fixed.zero_point)
    return QParams(dtype, torch.tensor(fixed.scale, dtype=torch.float64), torch.tensor(int(zero)), dtype.min, dtype.max)


def index_params(dtype: DType) -> QParams:
    """Return the parameters of index codes: scale 1, zero point 0."""
    return QParams(dtype, torch.tensor(1.0, dtype=torch.float64), torch.tensor(0), dtype.min, dtype.max)


def _params(
    low: Tensor, high: Tensor, dtype: DType, bits: int, rule: ParameterRule, *,
    symmetric: bool, restricted: bool, power_of_two: bool, axis: int | None,
) -> QParams:  # fmt: skip
    signed = dtype.kind == "int"
    qmin = -(1 << (bits - 1)) + int(restricted and symmetric) if signed else 0
    qmax = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    if symmetric:
        largest = torch.maximum(-low, high)
        low, high = (-largest if signed else torch.zeros_like(largest)), largest
    if rule.scale == "float32_steps":
        scale, steps, zero = _steps(low, high, qmin, qmax, bits, rule, symmetric=symmetric)
    else:
        scale, zero = _scale(low, high, qmin, qmax, rule, symmetric=symmetric)
        steps = None
    if power_of_two:
        scale = _next_power_of_two(scale)
        steps = (1.0 / scale).float() if steps is not None else None
    if axis is None:
        scale, zero = scale[0], zero[0]
        steps = steps[0] if steps is not None else None
    return QParams(dtype, scale, zero, qmin, qmax, axis=axis, steps=steps)


def _scale(
    low: Tensor, high: Tensor, qmin: int, qmax: int, rule: ParameterRule, *, symmetric: bool
) -> tuple[Tensor, Tensor]:
    scale = (high - low) / (qmax - qmin)
    dead = scale < rule.minimum_scale
    if symmetric:
        zero = torch.full_like(scale, 0.0 if qmin < 0 else float(torch.tensor((qmin + qmax) / 2).round()))
        zero = zero if qmin < 0 else zero * 0
    else:
        zero = torch.round(qmin - low / torch.where(dead, 1.0, scale)).clamp(qmin, qmax)
    scale = torch.where(dead, 1.0, scale)
    scale = scale.float().double() if rule.scale == "float32" else scale
    return scale, torch.where(dead, 0.0, zero).clamp(qmin, qmax).to(torch.int64)


def _steps(
    low: Tensor, high: Tensor, qmin: int, qmax: int, bits: int, rule: ParameterRule, *, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor]:
    width = (high - low).float()
    codes = torch.full_like(width, float(qmax - qmin))
    width = torch.where((width < rule.minimum_range) | torch.isnan(width), codes, width)
    steps = codes / width
    limit = float((1 << (bits - 1)) - 1)
    theirs = torch.zeros_like(steps) if symmetric else ((steps * low.float()).round() - qmin).clamp(-limit, limit)
    return 1.0 / steps.double(), steps, -theirs.to(torch.int64)


def _next_power_of_two(scale: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(scale)
    return torch.ldexp(torch.ones_like(scale), torch.where(mantissa == 0.5, exponent - 1, exponent))
