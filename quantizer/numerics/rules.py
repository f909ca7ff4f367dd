"""Scale and zero point from a range, under each platform's parameter rule."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.core.dtypes import DType, dtype, integer
from quantizer.core.errors import GraphError
from quantizer.core.formats import format_of
from quantizer.core.platform_settings import FixedOutput, ParameterRule
from quantizer.core.platforms import Platform
from quantizer.core.scaling import Blocks
from quantizer.core.schemes import ActivationPart, WeightPart
from quantizer.numerics.qparams import QParams

Array = NDArray[Any]


@dataclass(frozen=True)
class Ends:
    """The extrema of a weight: of the whole tensor (0-d), and of each slice along its channel axis (1-d)."""

    low: Tensor
    high: Tensor
    lows: Tensor
    highs: Tensor


def activation_params(
    low: float, high: float, part: ActivationPart, rule: ParameterRule, *, signed: bool, widened: bool = True
) -> QParams:
    """Return the parameters of an activation whose calibrated range is [low, high].

    With *widened*, the range is first extended to contain 0. Raises GraphError when an end is not finite or low > high.
    The platform's rule decides which number is rounded: the scale, or codes per unit (`q_range / f_range` in float32).
    """
    # a copy, because tensors of the cached result may be changed in place
    return _of_range(low, high, part, rule, signed=signed, widened=widened).copied()


@functools.lru_cache(maxsize=4096)
def _of_range(
    low: float, high: float, part: ActivationPart, rule: ParameterRule, *, signed: bool, widened: bool
) -> QParams:
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise GraphError(f"range [{low}, {high}]: both ends must be finite, the first not above the second.")
    if part.bits > rule.symmetric_above_bits and part.symmetry != "symmetric":
        part = part.model_copy(update={"symmetry": "symmetric", "range": "restricted"})
    if widened:
        low, high = min(low, 0.0), max(high, 0.0)
    if part.format != "integer":
        return _of_float(max(-low, high), part.format, rule)
    return _params(np.array([low]), np.array([high]), _Grid.of(part, rule, signed=signed), None)


def _of_float(largest: float, name: str, rule: ParameterRule) -> QParams:
    """Return parameters that map *largest* to the largest value of format *name*; every finite value has a code."""
    form, kind = format_of(name), dtype(name)
    scale = largest / form.values[-1]
    # a tensor of zeros has no scale of its own
    scale = 1.0 if scale < rule.minimum_scale else scale
    scale = float(np.float32(scale)) if rule.scale == "float32" else scale
    return QParams(kind, torch.tensor(scale, dtype=torch.float64), torch.tensor(0), kind.min, kind.max)


def full_range(params: QParams) -> QParams:
    """Return the same scale and zero point with all codes, including the one that a restricted range omits."""
    return replace(params, qmin=params.dtype.min, qmax=params.dtype.max)


def ones_complement(params: QParams) -> QParams:
    """Return parameters under which negation maps a signed code x to -x - 1, an unsigned one to (qmax >> 1) - x."""
    signed = params.dtype.kind == "int"
    half = 1 << (params.bits - 1)
    last = -1 if signed else half - 1
    return replace(
        params,
        dtype=integer(params.dtype.bits, signed=True),
        zero_point=last - params.zero_point,
        qmin=-half,
        qmax=half - 1,
    )


def same_numbers(a: QParams, b: QParams) -> bool:
    """Return whether two tensors have the same format, scale and zero point."""
    return a.dtype == b.dtype and torch.equal(a.scale, b.scale) and torch.equal(a.zero_point, b.zero_point)


def weight_part(part: WeightPart, platform: Platform, family: str) -> WeightPart:
    """Return the weight part of a scheme after the platform's overrides for operators of *family*."""
    changes: dict[str, object] = {}
    if family in platform.per_channel_weights:
        changes["granularity"] = "channel"
    if family in platform.per_tensor_weights:
        changes["granularity"] = "tensor"
    if family in platform.weight_bits:
        changes["bits"] = platform.weight_bits[family]
    return part.model_copy(update=changes) if changes else part


def weight_params(
    weights: Tensor,
    part: WeightPart,
    rule: ParameterRule,
    axis: int | None,
    *,
    group: int | None = None,
    ends: Ends | None = None,
    block_axis: int | None = None,
) -> QParams:
    """Return the parameters of *weights* from their extrema or *ends*: per slice along *axis*, or per tensor.

    weights: float, any shape. axis: the channel axis, None for one scale for the tensor. group: the number of
    neighbouring channels that share parameters, whatever the granularity; 1 is per channel. block_axis: the axis along
    which the scheme's blocks lie.
    """
    if part.granularity == "block":
        return _in_blocks(weights, part, rule, axis, block_axis)
    size = group if group is not None else 1 if part.granularity == "channel" else None
    values = weights.detach().numpy().astype(np.float64)
    if axis is None or size is None:
        flat, axis = values.reshape(1, -1), None
    else:
        flat = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    # 0 must be a code
    low, high = np.minimum(flat.min(1), 0.0), np.maximum(flat.max(1), 0.0)
    if ends is not None:
        pair = (ends.low.reshape(1), ends.high.reshape(1)) if axis is None else (ends.lows, ends.highs)
        low, high = (end.double().numpy() for end in pair)
    # neighbours share the extrema of their group; each channel still has its own entry
    if size is not None and size > 1:
        starts = np.arange(0, len(low), size)
        first = np.arange(len(low)) // size
        low, high = np.minimum.reduceat(low, starts)[first], np.maximum.reduceat(high, starts)[first]
    return _params(low, high, _Grid.of(part, rule, signed=rule.weight_sign == "signed"), axis)


def _in_blocks(
    weights: Tensor, part: WeightPart, rule: ParameterRule, axis: int | None, block_axis: int | None
) -> QParams:
    """Return a scale and a zero point for each block, from the extrema of the block.

    GraphError for an operand without blocks.
    """
    if axis is None or block_axis is None or part.block is None:
        raise GraphError("weights in blocks: the operand has no channel_axis and block_axis. Give them in its spec.")
    rank = weights.dim()
    blocks = Blocks(block_axis % rank, part.block)
    low, high = extrema(weights, axis % rank, blocks)
    grid = _Grid.of(part, rule, signed=rule.weight_sign == "signed")
    flat = _params(np.minimum(low, 0.0).ravel(), np.maximum(high, 0.0).ravel(), grid, axis % rank)
    scale, zero = flat.scale.reshape(low.shape), flat.zero_point.reshape(low.shape)
    return replace(flat, scale=scale, zero_point=zero, blocks=blocks)


def extrema(weights: Tensor, axis: int, blocks: Blocks) -> tuple[Array, Array]:
    """Return the smallest and the largest weight of each block, float64 [channels, blocks]."""
    # [channels, length of the block axis, rest]
    rows = np.moveaxis(weights.detach().numpy().astype(np.float64), (axis, blocks.axis), (0, 1))
    rows = rows.reshape(*rows.shape[:2], -1)
    starts = np.arange(0, rows.shape[1], blocks.size)
    return np.minimum.reduceat(rows.min(2), starts, 1), np.maximum.reduceat(rows.max(2), starts, 1)


def holding_bias(params: QParams, bias: Tensor, factor: Tensor, bits: int) -> QParams:
    """Return weight parameters whose scale is large enough for the codes of *bias* to fit *bits* bits.

    bias: float32, one per channel of the output. A scale that several channels share must hold the largest of their
    biases. factor: the scale of the input. A scale is increased until `factor * scale` is a ten-thousandth above `2 *
    |bias| / (2**bits - 2)`; per channel this bound is computed in float32 up to the division, per tensor in float64.
    """
    largest = (
        bias.float().abs().reshape(-1, params.scale.numel()).amax(0)
        if params.scale.dim()
        else bias.double().abs().amax()
    )
    smallest = (2.0 * largest * 1.0001).double() / float((1 << bits) - 2)
    product = factor * params.scale
    grown = (params.scale * (smallest / product)).float().double()
    return replace(params, scale=torch.where(product < smallest, grown, params.scale))


def bias_params(scale: Tensor, steps: Tensor | None, bits: int, axis: int | None) -> QParams:
    """Return a bias's parameters: the scale is the product of input and weight scale, the zero point 0."""
    dtype = integer(bits, signed=True)
    return QParams(
        dtype,
        scale,
        torch.zeros(scale.shape, dtype=torch.int64),
        -(1 << (bits - 1)),
        (1 << (bits - 1)) - 1,
        axis=axis if scale.dim() else None,
        steps=steps,
    )


def effective_bits(codes: Tensor, bits: int | None) -> Tensor:
    """Return bias *codes* with low bits cleared, so that the largest one needs *bits* significant bits; None keeps all.

    The same number of low bits is cleared in all codes (a floor); the result is rounded to float32.
    """
    if bits is None or not codes.numel():
        return codes
    # ends of at least one code, so that both logarithms exist
    least, most = min(int(codes.min()), -1), max(int(codes.max()), 1)
    limit = 1 << (bits - 1)
    excess = max(math.ceil(math.log2(most / (limit - 1))), math.ceil(math.log2(-least / limit)))
    return codes if excess <= 0 else (codes >> excess << excess).to(torch.float32).to(torch.int64)


def held_with_zero_point(
    codes: Tensor, added: Tensor, params: QParams, effective: int | None, undone: Tensor | None = None
) -> Tensor:
    """Return the bias *codes* after the float32 sum with *added* was stored, and *added* was subtracted from it.

    *effective*: as in `effective_bits`. *added*: the input zero point's share of the sums. *undone*: what is subtracted
    instead of *added*, if the sums contain another share. Where *added* ignores the weights' zero point, the codes are
    wrong by the product of both zero points.
    """
    held = (codes.float() + added.float()).clamp(float(params.qmin), float(params.qmax)).long()
    left = effective_bits(held, effective) - (added if undone is None else undone)
    return left.clamp(params.qmin, params.qmax)


def fixed_params(fixed: FixedOutput, bits: int, *, signed: bool) -> QParams:
    """Return output parameters that a platform fixes independently of the calibrated range."""
    signed = signed if fixed.signed is None else fixed.signed
    dtype = integer(bits, signed=signed)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    zero = {"min": low, "middle": 0}.get(str(fixed.zero_point), fixed.zero_point)
    return QParams(dtype, torch.tensor(fixed.scale, dtype=torch.float64), torch.tensor(int(zero)), low, high)


def index_params(dtype: DType, *, mask: bool = False) -> QParams:
    """Return the parameters of index codes: scale 1, zero point 0. A *mask* has the codes 0 and 1 only."""
    low, high = (0, 1) if mask else (dtype.min, dtype.max)
    return QParams(dtype, torch.tensor(1.0, dtype=torch.float64), torch.tensor(0), low, high)


def own_codes(dtype: DType) -> QParams:
    """Return parameters for integers that are stored unchanged: scale 1, zero point 0."""
    return replace(index_params(dtype), steps=torch.tensor(1.0))


@dataclass(frozen=True)
class _Grid:
    """The codes of an integer format, and the rule by which a range is put on them."""

    dtype: DType
    bits: int
    qmin: int
    qmax: int
    symmetric: bool
    power_of_two: bool
    rule: ParameterRule

    @classmethod
    def of(cls, part: ActivationPart | WeightPart, rule: ParameterRule, *, signed: bool) -> _Grid:
        """Return the grid of a part of a scheme; restricted symmetric codes lack the most negative one."""
        bits, symmetric = part.bits, part.symmetry == "symmetric"
        qmin = -(1 << (bits - 1)) + int(part.range == "restricted" and symmetric) if signed else 0
        qmax = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
        return cls(integer(bits, signed=signed), bits, qmin, qmax, symmetric, part.rule == "power_of_two", rule)

    @property
    def zero_points(self) -> tuple[int, int]:
        """The smallest and the largest zero point: the ends of the codes, or negations of a signed integer."""
        limit = (1 << (self.bits - 1)) - 1
        return (-limit, limit) if self.rule.zero_point == "negated" else (self.qmin, self.qmax)


def _params(low: Array, high: Array, grid: _Grid, axis: int | None) -> QParams:
    """Return the parameters of the ranges [low, high]: one for each along *axis*, or per tensor if *axis* is None."""
    if grid.symmetric:
        # of unsigned codes only the positive half of the symmetric range is represented
        largest = np.maximum(-low, high)
        low, high = (-largest if grid.dtype.kind == "int" else np.zeros_like(largest)), largest
    steps: Array | None = None
    if grid.rule.scale == "float32_steps":
        scale, zero, steps = _steps(low, high, grid)
    else:
        scale, zero = _scale(low, high, grid)
    shape = () if axis is None else scale.shape
    return QParams(
        grid.dtype,
        torch.from_numpy(scale).reshape(shape),
        torch.from_numpy(zero.astype(np.int64)).reshape(shape),
        grid.qmin,
        grid.qmax,
        axis=axis,
        steps=None if steps is None else torch.from_numpy(steps).reshape(shape),
    )


def _scale(low: Array, high: Array, grid: _Grid) -> tuple[Array, Array]:
    """Return scale and zero point; a scale below the rule's smallest becomes 1."""
    scale = (high - low) / (grid.qmax - grid.qmin)
    # an empty range, or one that rounds to nothing, must not divide by 0
    dead = scale < grid.rule.minimum_scale
    scale = np.where(dead, 1.0, scale)
    if grid.power_of_two:
        scale = _next_power_of_two(scale)
    zero = np.zeros_like(scale) if grid.symmetric else np.clip(np.rint(grid.qmin - low / scale), *grid.zero_points)
    zero = np.clip(np.where(dead, 0.0, zero), grid.qmin, grid.qmax)
    # a scale beyond float32 becomes infinite, and QParams refuses it
    with np.errstate(over="ignore"):
        return scale.astype(np.float32).astype(np.float64) if grid.rule.scale == "float32" else scale, zero


def _steps(low: Array, high: Array, grid: _Grid) -> tuple[Array, Array, Array]:
    """Return scale, zero point and codes per unit, which are float32 numbers; the scale is their inverse."""
    width = (high - low).astype(np.float32)
    codes = np.float32(grid.qmax - grid.qmin)
    steps = codes / np.where((width < grid.rule.minimum_range) | np.isnan(width), codes, width)
    if grid.power_of_two:
        steps = (1.0 / _next_power_of_two(1.0 / steps.astype(np.float64))).astype(np.float32)
    # the rule's zero point has the other sign: it is added to the code, not subtracted
    theirs = np.zeros_like(steps) if grid.symmetric else np.rint(steps * low.astype(np.float32)) - grid.qmin
    least, most = grid.zero_points
    theirs = np.clip(theirs, -most, -least)
    return 1.0 / steps.astype(np.float64), 0.0 - theirs, steps


def _next_power_of_two(scale: Array) -> Array:
    # a power of two has the mantissa 1/2 and is its own next power
    mantissa, exponent = np.frexp(scale)
    return np.asarray(np.ldexp(np.ones_like(scale), np.where(mantissa == 0.5, exponent - 1, exponent)))
