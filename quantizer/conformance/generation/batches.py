"""Batches: a structure that is drawn once, with several ranges, and several data sets under each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from quantizer.conformance.generation.builder import complete, drawn
from quantizer.conformance.generation.choice_sources import ChoiceSource, HashChoices
from quantizer.conformance.generation.hashing import key, sample_number
from quantizer.conformance.generation.stacks import ALONE, PARTS, SEED_BITS, stacked
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.shapes import variables

T = TypeVar("T")
RANGES = 4
"""The number of cases of one structure, each with different ranges and data."""
STRUCTURAL = ("order", "activation", "tiles")
"""Structural choices besides dimensions and operands; the names of choices per axis begin with the same words."""


def member(target: Target, seed: int, place: int, most: int = PARTS) -> Case:
    """Return the case *place* of the series *seed*. RANGES neighbouring cases share only their structure.

    most: the largest number of data sets of the case. It has several if its structure has an axis to stack them along.
    A case is self-contained, so judging it separately gives the same verdict as in its batch.
    """
    drawn_once = _Structure(target, seed, place // RANGES)
    own = HashChoices(key(seed, target.id, "member", str(place)), {})
    chooser = _Member(drawn_once.choices, own)
    bound, present, first = _drawn(drawn_once)
    sets: list[str] = list(target.spec.data)
    # neighbouring cases take the data sets in turn
    data = sets[(sets.index(first) + place) % len(sets)]
    case = complete(target, bound, present, data, own.integer("seed", 0, (1 << SEED_BITS) - 1), chooser)
    return stacked(target, case, chooser, keeps=False, most=most)


def sibling(target: Target, case: Case, number: int) -> Case:
    """Return another case of the structure of *case*, with ranges, constants and data of its own, untiled."""
    row = {"order": case.order, "activation": case.activation, "tiles": "untiled"}
    chooser = HashChoices(key(number, target.id, "sibling", str(sample_number(case))), row)
    sets = [name for name in target.spec.data if name not in ALONE] or target.spec.data
    bound = variables(target.spec, case.shapes, case.attrs)
    seed = chooser.integer("seed", 0, (1 << SEED_BITS) - 1)
    return complete(target, bound, [*case.shapes], chooser.option("data", sets), seed, chooser)


class _Structure:
    """A structure of a series by its number; equal ones have equal choices."""

    def __init__(self, target: Target, seed: int, number: int) -> None:
        self.target = target
        self.choices = HashChoices(key(seed, target.id, "structure", str(number)), {})
        self._key = target.spec, target.scheme.name, target.platform.platform, seed, number

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self._key == other._key


@functools.lru_cache(maxsize=4)
def _drawn(structure: _Structure) -> tuple[Mapping[str, Any], Sequence[str], str]:
    """Return what `drawn` gives for a structure, which neighbouring cases share; read, never written."""
    return drawn(structure.target, structure.choices)


class _Member:
    """Takes the choices of the structure from one chooser, all other choices from another."""

    def __init__(self, structure: ChoiceSource, own: ChoiceSource) -> None:
        self._structure = structure
        self._own = own

    def _of(self, name: str) -> ChoiceSource:
        # "tiles.axis" and "tiles" alike
        return self._structure if name.split(".", 1)[0] in STRUCTURAL else self._own

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return self._of(name).integer(name, low, high)

    def option(self, name: str, options: Sequence[T]) -> T:
        """Return one of *options*."""
        return self._of(name).option(name, options)

    def bin(self, factor: str) -> str | None:  # noqa: ARG002 - the protocol has this argument
        """Return None: no row requests a bin."""
        return None
