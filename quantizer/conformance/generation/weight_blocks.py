"""Weights in blocks: sums over several blocks, whole ones and a rest, and a magnitude of its own for each block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.choice_sources import ChoiceSource
from quantizer.conformance.generation.hashing import uniform
from quantizer.conformance.generation.units import block_along, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue, Case

Array = NDArray[Any]
SMALLER = 6
"""The largest number of binary places by which the magnitude of a block is below that of the weight."""
KEPT = ("small_integers", "accumulator_limit", "cancelling", "returning", "outliers")
"""Data sets that need the magnitudes that they have."""


def in_blocks(target: Target, name: str, drawn: AttrValue, chooser: ChoiceSource) -> AttrValue:
    """Return a size of several blocks in place of one past 1; any other number as it was drawn.

    Domains have small sizes. In blocks of 128 nearly all of them would be the rest of a first block, and no scale of
    one block could be taken for that of another.
    """
    block = block_along(target, name) if is_ours(target.spec) else None
    if block is None or not isinstance(drawn, int) or drawn <= 1:
        return drawn
    return chooser.option(f"{name}.blocks", sizes_of_blocks(block))


def sizes_of_blocks(block: int) -> list[int]:
    """Return two and three whole blocks, and one or two whole blocks with a rest: one place, a half, all but one."""
    return [2 * block, 3 * block, block + 1, 2 * block - 1, 2 * block + block // 2, 2 * block + 1]


def uneven_blocks(target: Target, case: Case, name: str, values: Array) -> Array:
    """Return the weight's *values* under a magnitude of its own for each block of each channel; others unchanged.

    Equally distributed values have nearly one largest magnitude in all long blocks.
    """
    item, part = target.spec.inputs[name], target.weight
    if item.role != "weight" or part is None or part.block is None or case.data.set in KEPT:
        return values
    along, channels = (item.block_axis or 0) % values.ndim, (item.channel_axis or 0) % values.ndim
    places = np.arange(values.shape[along]) // part.block
    count = int(places[-1]) + 1 if places.size else 1
    shares = _between_powers(uniform(case.data.seed, f"{name}/blocks", (values.shape[channels], count)) * SMALLER)
    spread = shares[:, places] if channels < along else shares[:, places].T
    shape = [size if axis in (along, channels) else 1 for axis, size in enumerate(values.shape)]
    return np.asarray(values * spread.reshape(shape))


def _between_powers(places: Array) -> Array:
    """Return numbers that fall from 1 by half for each of *places*, along a line between two powers of two.

    A power of two with a real exponent may differ in its last bit between processors; these steps round nowhere.
    """
    whole = np.floor(places)
    return np.asarray(np.ldexp(1.0 - (places - whole) / 2, -whole.astype(np.int32)))
