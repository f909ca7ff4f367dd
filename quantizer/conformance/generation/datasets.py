"""The data sets: the contents of a case's tensors, decided by seed, name and coordinates."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.generation.fillers import FILLERS, each, indices, random, site_of
from quantizer.conformance.generation.ranges import activation_of
from quantizer.conformance.generation.ties import near_ties, ties, ties_of_seeds
from quantizer.conformance.generation.weight_blocks import uneven_blocks
from quantizer.conformance.grids import decoded
from quantizer.conformance.model_cases import GIVEN, check_given, values_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case, DataRecipe
from quantizer.core.errors import CaseError
from quantizer.core.shapes import Shape
from quantizer.numerics.qparams import QParams
from quantizer.tiling.stacks import cut_along, sizes_of_parts

Array = NDArray[Any]
DIRECTED = ("ties", "every_code", "near_ties")
"""Data sets whose values are solved from the parameters of operands and outputs."""
MANY = 4
"""If there are more codes per element than this, every_code adds landmarks, in place of some evenly spaced codes."""


def materialise(target: Target, case: Case) -> dict[str, Tensor]:
    """Return the float32 tensors of *case* in the operator's axis order; CaseError for an unknown data set."""
    check_sets(case)
    if case.data.given:
        return {name: values_of(case, name).float() for name in case.shapes}
    arrays = _filled(_Recipe(target, case))
    kept = {name: np.asarray(_kept(case, name, values), np.float32) for name, values in arrays.items()}
    return {name: torch.from_numpy(values) for name, values in kept.items()}


def check_sets(case: Case) -> None:
    """Raise CaseError for an unknown data set, or for given tensors that are missing or contradict themselves."""
    if case.data.given or case.data.set == GIVEN:
        check_given(case)
        return
    for name in (case.data.set, *case.data.sets):
        if name not in (*FILLERS, *DIRECTED):
            raise CaseError(f"data.set {name!r}: must be one of {', '.join((*DIRECTED, *FILLERS))}.")


class _Recipe:
    """Everything that decides the values of a case; equal recipes give equal values."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target = target
        self.case = case
        directed = any(name in DIRECTED for name in (case.data.set, *case.data.sets))
        # other sets do not depend on the range of an output, which is not known while it is calibrated
        ranges = case.ranges if directed else {n: case.ranges.get(n) for n in case.shapes}
        self._key = (
            target.spec,
            target.scheme.name,
            target.platform.platform,
            case.data.set,
            case.data.seed,
            tuple(case.shapes.items()),
            tuple(ranges.items()),
            tuple(case.attrs.items()),
            case.data.stack,
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Recipe) and self._key == other._key


# the reference, the engine and several checks ask for the values of one case
@functools.lru_cache(maxsize=16)
def _filled(recipe: _Recipe) -> dict[str, Array]:
    return _fill(recipe.target, recipe.case) if recipe.case.data.stack is None else _stack(recipe.target, recipe.case)


def _stack(target: Target, case: Case) -> dict[str, Array]:
    """Concatenate the activations of the parts along the stack's axis.

    Operands that are not cut come from the recipe.
    """
    stack = case.data.stack
    assert stack is not None
    places = cut_along(target.spec, case.shapes, case.attrs, stack.axis)
    own = [*zip(sizes_of_parts(target.spec, case), stack.parts, strict=False)]
    filled = {name: _parts(target, case, own, name, axis) for name, axis in places.items()}
    rest = [name for name in case.shapes if name not in places]
    # where the output's range was calibrated on this very data, its constants are known
    first = _filled(_Recipe(target, case.but(shapes=own[0][0], data=DataRecipe(case.data.set, case.data.seed))))
    found = {**{name: first[name] for name in rest}, **filled}
    return {name: found[name] for name in case.shapes}


def _parts(
    target: Target, case: Case, own: Sequence[tuple[Mapping[str, Shape], tuple[str, int]]], name: str, axis: int
) -> Array:
    """Return activation *name* of all parts of *case*, whose shapes and data sets are *own*, along *axis*.

    Tensors of one data set are filled together.
    """
    made: list[Array | None] = [None] * len(own)
    first = own[0][0]
    # the last part may be smaller than the others, and is then filled alone
    for kind in dict.fromkeys(kind for _, (kind, _) in own):
        alike = [i for i, (shapes, (other, _)) in enumerate(own) if other == kind and shapes == first]
        if alike and target.spec.inputs[name].kind != "index":
            seeds = tuple(own[i][1][1] for i in alike)
            filled = _of_seeds(target, case.but(shapes=first, data=DataRecipe(kind, seeds[0])), name, seeds)
            for i, values in zip(alike, filled, strict=False):
                made[i] = values
    alone = (
        _fill(target, case.but(shapes=shapes, data=DataRecipe(*data)), [name])[name] if known is None else known
        for (shapes, data), known in zip(own, made, strict=True)
    )
    return np.concatenate([*alone], axis)


def _of_seeds(target: Target, case: Case, name: str, seeds: tuple[int, ...]) -> list[Array]:
    """Return activation *name* of the case's data set for each seed; empty where each needs a case of its own."""
    if case.data.set in FILLERS:
        return each(case.data.set, site_of(target, case, name), seeds)
    tied = ties_of_seeds(target, case, name, seeds) if case.data.set == "ties" else None
    return [] if tied is None else [*tied]


def _fill(target: Target, case: Case, asked: Sequence[str] | None = None) -> dict[str, Array]:
    """Return the tensors of one data set, or only the tensors *asked* for if the set depends only on ranges."""
    names = case.shapes if asked is None else asked
    if case.data.set == "ties":
        filled = ties(target, case)
    elif case.data.set == "near_ties":
        filled = near_ties(target, case)
    elif case.data.set == "every_code":
        filled = {name: _every_code(target, case, name) for name in names}
    else:
        filler = FILLERS[case.data.set]
        filled = {name: uneven_blocks(target, case, name, filler(site_of(target, case, name))) for name in names}
    # indices must lie within their domain, whatever the data set
    pointing = {name: item for name, item in target.spec.inputs.items() if item.kind == "index" and name in filled}
    return filled | {name: indices(site_of(target, case, name)) for name in pointing}


def _every_code(target: Target, case: Case, name: str) -> Array:
    """Return the values of all codes one after the other, or of evenly spaced codes from first to last.

    If there are many more codes than elements, the codes at which kernels change branches are added: `landmarks`. If
    several activations have room for every combination of codes, they count like digits: an activation takes its next
    code after all earlier ones have gone through theirs.
    """
    if target.spec.inputs[name].role != "activation":
        return random(site_of(target, case, name))
    # an operand of real numbers has no codes: it takes the values of the output's
    decided = target.spec.inputs[name].kind == "real" and "y" in case.ranges
    params = activation_of(target, case, "y" if decided else name)
    size = math.prod(case.shapes[name])
    span = params.qmax - params.qmin
    marked = landmarks(params)
    counts = _codes_of_equals(target, case, name)
    if len(counts) > 1 and size >= math.prod(counts.values()):
        # place i holds digit `name` of i, written in the numbers of codes of the operands
        before = itertools.takewhile(lambda other: other != name, counts)
        steps = np.arange(size) // math.prod(counts[other] for other in before) % counts[name]
    elif size > span:
        steps = np.arange(size)
    elif span > MANY * size and 2 * marked.size <= size:
        evenly = size - marked.size
        steps = np.sort(np.concatenate([marked - params.qmin, np.arange(evenly) * span // max(evenly - 1, 1)]))
    else:
        # evenly spaced, with the first and the last code
        steps = np.arange(size) * span // max(size - 1, 1)
    # elements beyond the number of codes repeat the last one
    codes = np.minimum(params.qmin + steps, params.qmax).reshape(case.shapes[name])
    values: Array = decoded(codes, params, int(params.zero_point)) * float(params.scale)
    return values


def _codes_of_equals(target: Target, case: Case, name: str) -> dict[str, int]:
    """Return the number of codes of each activation of *name*'s shape; empty for one without codes."""
    items = target.spec.inputs
    equals = [
        n for n in target.spec.activations if items[n].kind == "value" and case.shapes.get(n) == case.shapes[name]
    ]
    if name not in equals:
        return {}
    known = {other: activation_of(target, case, other) for other in equals}
    return {other: params.qmax - params.qmin + 1 for other, params in known.items()}


def landmarks(params: QParams) -> Array:
    """Return the codes at the ends, at and around the zero point, and at both sides of powers of two of either sign."""
    powers = 2 ** np.arange(params.bits)
    centres = np.concatenate([-powers, [0, int(params.zero_point), params.qmin, params.qmax], powers])
    # a row of three codes for each power
    around = np.unique(centres[:, None] + np.array([-1, 0, 1]))
    codes: Array = around[(around >= params.qmin) & (around <= params.qmax)]
    return codes


def _kept(case: Case, name: str, values: Array) -> Array:
    if name not in case.data.kept:
        return values
    kept = np.zeros_like(values)
    for coordinates in case.data.kept[name]:
        if len(coordinates) == values.ndim and all(c < s for c, s in zip(coordinates, values.shape, strict=True)):
            kept[coordinates] = values[coordinates]
    return kept
