"""Expected parameters of weights and biases: a second implementation that shares nothing with `numerics`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.expected.parameters import Expected, choose, code_ends
from quantizer.core.dtypes import integer
from quantizer.core.platform_settings import ParameterRule
from quantizer.core.platforms import Platform
from quantizer.core.schemes import WeightPart

Array = NDArray[Any]
F32 = np.float32


def weight_in_blocks(values: Array, part: WeightPart, rule: ParameterRule, axis: int, block_axis: int) -> Expected:
    """Return the rule's choice for each block of a weight from its own extrema; the last block may be shorter."""
    size = part.block or 1
    rows = np.moveaxis(values, (axis, block_axis), (0, 1))
    found: list[list[tuple[float, int, float | None]]] = []
    for row in rows:
        parts = [row[start : start + size] for start in range(0, len(row), size)]
        found.append(
            [
                choose(
                    min(0.0, float(p.min())),
                    max(0.0, float(p.max())),
                    part.bits,
                    rule,
                    signed=rule.weight_sign == "signed",
                    symmetric=part.symmetry == "symmetric",
                    restricted=part.range == "restricted",
                    power_of_two=part.rule == "power_of_two",
                )
                for p in parts
            ]
        )
    signed, restricted = rule.weight_sign == "signed", part.range == "restricted" and part.symmetry == "symmetric"
    qmin, qmax = code_ends(part.bits, signed=signed, restricted=restricted)
    scale = np.array([[one[0] for one in row] for row in found])
    zero = np.array([[one[1] for one in row] for row in found])
    return Expected(integer(part.bits, signed=signed), scale, zero, qmin, qmax, blocks=(block_axis % values.ndim, size))


def coarsest(found: Expected) -> Expected:
    """Return the largest scale of each channel's blocks, the scale of the constant; without blocks, *found*."""
    if found.blocks is None:
        return found
    scale = found.scale.max(axis=1)
    return replace(found, scale=scale, zero_point=np.zeros(scale.shape, dtype=np.int64), blocks=None)


def weight(
    values: Array, part: WeightPart, rule: ParameterRule, axis: int | None, group: int | None = None
) -> Expected:
    """Return the parameters that the rule chooses for a weight from its extrema.

    *group* neighbouring channels share a scale.
    """
    signed, symmetric = rule.weight_sign == "signed", part.symmetry == "symmetric"
    per_channel = axis is not None and (part.granularity == "channel" or group is not None)
    rows = np.moveaxis(values, axis or 0, 0) if per_channel else values[None]
    flat, size = rows.reshape(len(rows), math.prod(rows.shape[1:])), group or 1
    firsts = np.arange(0, len(flat), size if per_channel else 1)
    lows = np.minimum.reduceat(flat.min(axis=1), firsts)
    highs = np.maximum.reduceat(flat.max(axis=1), firsts)
    chosen = [
        choose(
            min(0.0, low),
            max(0.0, high),
            part.bits,
            rule,
            signed=signed,
            symmetric=symmetric,
            restricted=part.range == "restricted",
            power_of_two=part.rule == "power_of_two",
        )
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
    # every channel has the numbers of its whole group
    found = [chosen[channel // size] for channel in range(len(flat))]
    qmin, qmax = code_ends(part.bits, signed=signed, restricted=part.range == "restricted" and symmetric)
    scale, zero, steps = (np.array(column) for column in zip(*found, strict=True))
    if not per_channel:
        scale, zero, steps = scale[0], zero[0], steps[0]
    known = None if found[0][2] is None else np.asarray(steps, dtype=F32)
    return Expected(integer(part.bits, signed=signed), np.asarray(scale), np.asarray(zero), qmin, qmax, known)


def holding_bias(found: Expected, bias: Array, input_scale: float, bits: int) -> Expected:
    """Return *found* with each scale grown until every bias that it carries fits *bits* bits.

    If groups of channels share scales, channels j, j + n, j + 2n, ... have scale j.
    """
    count = found.scale.size
    largest: Array = (
        np.array([np.abs(bias.astype(F32)[first::count]).max() for first in range(count)], dtype=F32)
        if found.scale.ndim
        else np.array(np.abs(bias).max(), dtype=np.float64)
    )
    # the type of the largest bias carries through: float32 per channel, float64 for a tensor
    needed = [float(v * v.dtype.type(2) * v.dtype.type(1.0001)) / (2**bits - 2) for v in np.atleast_1d(largest)]
    scales = [float(v) for v in np.atleast_1d(found.scale)]
    grown = [
        float(F32(scale * (least / (input_scale * scale)))) if input_scale * scale < least else scale
        for scale, least in zip(scales, needed, strict=True)
    ]
    return replace(found, scale=np.array(grown).reshape(found.scale.shape))


def held_bias(values: Array, steps: Array, added: Array, bits: int, effective: int) -> Array:
    """Return bias codes after rounding in float32 together with the contribution of the input's zero point to the sums.

    *added*: those contributions, one integer per channel. They are subtracted again after the rounding, so that the
    result is the code that the channel's sums use.
    """
    ends = F32(-(2.0 ** (bits - 1))), F32(2.0 ** (bits - 1) - 1)
    codes = np.clip(np.rint(values.astype(F32) * steps), *ends)
    held = [int(v) for v in np.clip(codes + added.astype(F32), *ends)]
    # the fewest low bits that must go so that every code has the effective bits
    places = 0
    while max(held, default=0) > (2 ** (effective - 1) - 1) << places or min(held, default=0) < -1 << (
        effective - 1 + places
    ):
        places += 1
    if places:
        # the shift floors, for negative codes as well
        held = [int(F32(v >> places << places)) for v in held]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return np.array([min(high, max(low, v - int(a))) for v, a in zip(held, added, strict=True)], dtype=np.int64)


def repeated(found: Expected, count: int) -> Expected:
    """Repeat the list of per-channel parameters until there are *count*."""
    own = found.scale.size
    if found.blocks is not None:
        return found
    if not found.scale.ndim or own == count or not count:
        return found
    times = count // own
    steps = None if found.steps is None else np.tile(found.steps, times)
    return replace(found, scale=np.tile(found.scale, times), zero_point=np.tile(found.zero_point, times), steps=steps)


def weight_part(part: WeightPart, platform: Platform, family: str) -> WeightPart:
    """Return the weight part of the scheme as the platform changes it for this family."""
    always, never = (family in named for named in (platform.per_channel_weights, platform.per_tensor_weights))
    granularity = "channel" if always else "tensor" if never else part.granularity
    bits = platform.weight_bits.get(family, part.bits)
    return part.model_copy(update={"bits": bits, "granularity": granularity})


def weight_groups(
    part: WeightPart, platform: Platform, channels: int, groups: int, *, shared: bool = False
) -> list[int | None]:
    """Return how many channels may share a weight scale: the first choice, then the platform's fallbacks.

    *shared*: all groups of the output have the same weights.
    """
    # all groups have one list of channels, so one scale serves them all
    if shared and part.granularity == "tensor" and platform.parameters.weight_groups:
        return [channels]
    attribute = platform.parameters.weight_groups
    if part.granularity == "channel":
        count = channels
    elif attribute and groups > 1:
        count = groups
    else:
        return [None]
    if not platform.multiplier.unify_shifts:
        return [math.ceil(channels / count)]
    sizes: list[int | None] = []
    while count >= 1:
        sizes.append(math.ceil(channels / count))
        count //= 2
    return sizes
