"""Stacks several data sets of one structure along an independent axis, so that they run as one case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from quantizer.conformance.generation.builder import build_case, coverage, tile_plan
from quantizer.conformance.generation.case_classes.mixed_sizes import seeded_choices
from quantizer.conformance.generation.choice_sources import ChoiceSource, HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Stack, TilePlan
from quantizer.tiling.stacks import independent_axes, stacked_shapes

PARTS = 16
"""The largest number of data sets in a stack."""
OF_ROWS = 24
"""The largest number of data sets in a stack of the gate: 24 more cost less than one more structure."""
MOST = 4096
"""The largest number of elements of a stack's tensor. A larger stack costs as much as separate cases."""
ALONE = ("every_code", "near_ties")
"""Data sets that need a tensor of a particular shape."""
SAME = ("zeros", "accumulator_limit")
"""Sets that give the same activations under every seed."""
BESIDE = ("corners", "one_hot", "zeros")
"""The names of the data sets that a stack gets in addition to further seeds of the case's own data set."""
SEED_BITS = 32


def stacked(target: Target, case: Case, chooser: ChoiceSource, *, keeps: bool = True, most: int = PARTS) -> Case:
    """Return *case* with more data sets, at most *most* in all, and with new tiles.

    keeps: return *case* unchanged if the stack would lose a class of coverage, such as a batch of one. Ranges,
    constants and the first data set are those of *case*. An operator with a plugin's reference has no stacks, because
    the domains of its dimensions are limits.
    """
    spec = target.spec
    if case.data.stack is not None or case.data.kept or case.data.set in ALONE or not is_ours(spec):
        return case
    largest = max(map(math.prod, case.shapes.values()), default=0)
    count = min(most, MOST // max(largest, 1))
    wanted = coverage(target, case) if keeps else set[str]()
    # the first axis that keeps every class of coverage
    for axis in independent_axes(spec, case.shapes, case.attrs) if count > 1 else ():
        shapes = stacked_shapes(spec, case.shapes, case.attrs, axis, count)
        if shapes is None:
            continue
        data = replace(case.data, stack=Stack(axis, _sets(target, case, count)))
        whole = case.but(shapes=shapes, data=data, tiles=TilePlan({}))
        whole = whole.but(tiles=tile_plan(target, whole, chooser))
        if wanted <= coverage(target, whole):
            return whole
    return case


def _sets(target: Target, case: Case, count: int) -> tuple[tuple[str, int], ...]:
    """Return the data set and seed of each part: the case's own, then others and its own with new seeds, in turn."""
    own, seed = case.data.set, case.data.seed
    others: list[str] = [name for name in BESIDE if name in target.spec.data and name != own] or [own]
    # another seed of such a set would repeat the same activations
    again = own if own not in SAME else others[0]
    names = [again if place % 2 == 0 else others[place // 2 % len(others)] for place in range(1, count)]
    # every part has small integers, so that floating point stays exact
    if own == "small_integers":
        names = [own] * (count - 1)
    seeds = [key(seed, "stack", str(place)) % (1 << SEED_BITS) for place in range(1, count)]
    return ((own, seed), *zip(names, seeds, strict=True))


def row_case(target: Target, index: int, row: Mapping[str, str], *, alone: bool = False) -> Case:
    """Return the case of row *index* of *target*: a stack if possible, unless *alone*."""
    return _hashed(target, HashChoices(key(index, target.id), row), alone=alone, keeps=True)


def seeded_case(target: Target, index: int, *, alone: bool = False) -> Case:
    """Return case *index* of hashed choices, without a covering row: a stack if possible, unless *alone*."""
    return _hashed(target, seeded_choices(target, index), alone=alone, keeps=False)


def _hashed(target: Target, chooser: HashChoices, *, alone: bool, keeps: bool) -> Case:
    case = build_case(target, chooser)
    return case if alone else stacked(target, case, chooser, keeps=keeps, most=OF_ROWS)
