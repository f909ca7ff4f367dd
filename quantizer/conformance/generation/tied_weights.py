"""Weights of the data set `ties`: small codes under scales that are powers of two, so that their sums can be ties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.hashing import integers, key
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.schemes import WeightPart

Array = NDArray[Any]
SMALL_CODES = 7
"""Distance, in codes, from the middle within which tied elements lie."""


def tied_weights(target: Target, case: Case, name: str) -> Array:
    """Return small codes and values half way between two codes; one element per scale lies at the end of its range."""
    part = target.weight
    largest = case.ranges[name][1]
    if part is None:
        return np.zeros(case.shapes[name])
    span = (1 << (part.bits - 1)) - 1 if part.range == "restricted" else ((1 << part.bits) - 1) / 2
    # the power of two at or below the scale of the range: `constant_range` made that one, an example's range may not
    unit = math.ldexp(1.0, math.frexp(largest / span)[1] - 1)
    spread = min(SMALL_CODES, (1 << (part.bits - 1)) - 1)
    codes = integers(case.data.seed, name, case.shapes[name], -spread, spread)
    halves = integers(case.data.seed, f"{name}.halves", case.shapes[name], 0, 3) == 0
    values = np.where(halves & (np.abs(codes) < spread), codes + 0.5, codes) * unit
    channels = np.moveaxis(values, target.spec.inputs[name].channel_axis or 0, 0)
    if part.symmetry == "asymmetric":
        _set_ends(channels, unit, part, key(case.data.seed, f"{name}.high"))
        return values
    if part.block is not None:
        blocks = np.moveaxis(values, target.spec.inputs[name].block_axis or 0, 0)
        blocks[:: part.block] = unit * span
        return values
    one = values.ndim == 1 and part.granularity == "tensor"
    first: tuple[Any, ...] = (0,) if one else (slice(None), *[0] * (values.ndim - 1))
    # the first element of each channel fixes the channel's scale; with one scale per tensor, a vector needs only one
    channels[first] = unit * span
    return values


def _set_ends(channels: Array, unit: float, part: WeightPart, seed: int) -> None:
    """Give *channels* a range of all codes of *part* in steps of one *unit*, around 0.

    Each channel (or all together, if each has a single value and all have one scale) has an element at each end. The
    single value of a channel is one end, above or below: 0, which every range holds, is the other.
    """
    steps, alone = (1 << part.bits) - 1, channels[0].size == 1
    if alone and part.granularity == "channel":
        signs = 1 - 2 * ((np.arange(len(channels)) + seed % 2) % 2)
        channels[...] = (signs * steps * unit).reshape(channels.shape)
        return
    rows = channels.reshape(1 if alone else channels.shape[0], -1).copy()
    high = steps - SMALL_CODES if alone else steps * 3 // 8 + seed % (steps // 4 + 1)
    rows[:, 0] = high * unit
    # a row of one element keeps its high end: [:, 1:] leaves nothing of it
    rows[:, 1:][:, -1:] = (high - steps) * unit
    channels[...] = rows.reshape(channels.shape)
