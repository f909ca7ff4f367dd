"""Cases whose activations have a pattern, under zero points beside an end or beside 0.

Kernels skip zeros, search in order, and reduce lanes and rows. Their result may depend on the place of a value, which
random data rarely shows.
"""

from __future__ import annotations

from quantizer.conformance.generation.builder import build_case, complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.fillers import LAST_ALONE, PATTERNS
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import activation_of, range_of
from quantizer.conformance.generation.units import Unit, bound_with, units
from quantizer.conformance.target import Target
from quantizer.core.case import Case

CASES = 4
"""The number of cases of a target. The targets of an operator get different patterns and zero points."""
PAST = 3
"""Row of the case with an axis longer than a vector: the largest element of a row lies after the last whole vector."""
VECTOR = 16
"""An axis with more elements than this counts as longer than a vector."""
AT_END = (0, 1, LAST_ALONE)
"""The patterns of this case, as places in PATTERNS: rising, falling, or a single value in the last place."""
TRIES = 8
"""After this many sizes that are illegal or too large, the case has drawn sizes."""
NEEDED = frozenset(("zeros", "one_hot"))
"""Data sets of operators that take any values."""
BESIDE = (("first", 1), ("last", -1), ("zero", 1), ("zero", -1), ("first", 3), ("last", -3))
"""Zero points of the first activation: distance from the first code, the last one, or 0; every second one is odd."""


def patterned(target: Target) -> list[Case]:
    """Return the cases of a target whose activations may have any values."""
    if not set(target.spec.data) >= NEEDED or target.scheme.activation.format != "integer":
        return []
    return [_case(target, row) for row in range(CASES)]


def _case(target: Target, row: int) -> Case:
    number = key(row, target.id, "patterned")
    if row == PAST and (long := _long(target, number)) is not None:
        return long
    case = build_case(target, HashChoices(number, {"data": "patterns"}))
    values = [n for n in target.spec.activations if n in case.ranges and target.spec.inputs[n].kind == "value"]
    # every second case keeps its drawn range
    if not values or row % 2 or target.spec.inputs[values[0]].domain:
        return case
    return _moved(target, case, values[0], number // 16)


def _long(target: Target, number: int) -> Case | None:
    """Return a case with one size past a vector, with every operand; None where no such size is possible."""
    spec, found = target.spec, [unit for unit in units(target) if _is_past_vector(unit, target)]
    for step in range(min(TRIES, len(found))):
        unit = found[(number // 16 + step) % len(found)]
        chooser = HashChoices(number, {"data": "patterns", "tiles": "untiled"})
        bound = bound_with(spec, {unit.name: unit}, chooser)
        if bound is not None:
            # `patterns` chooses by the remainder of the seed: this one is the wanted pattern
            seed = number % (1 << 31) // len(PATTERNS) * len(PATTERNS) + AT_END[number // 8 % len(AT_END)]
            return complete(target, bound, list(spec.inputs), "patterns", seed, chooser)
    return None


def _is_past_vector(unit: Unit, target: Target) -> bool:
    """Return whether the unit is the size of a dimension or of a shape's axis, and exceeds a vector."""
    domain = target.spec.dims.get(unit.name)
    is_size = domain is not None and (domain.type == "int" or unit.place is not None)
    return is_size and not unit.is_full and unit.value > VECTOR


def _moved(target: Target, case: Case, name: str, number: int) -> Case:
    """Return the case with a range of *name* that gives one of the zero points in BESIDE, if its range is free."""
    params = activation_of(target, case, name)
    ends = {"first": params.qmin, "last": params.qmax, "zero": 0 if params.qmin < 0 else (params.qmax + 1) // 2}
    side, distance = BESIDE[number % len(BESIDE)]
    moved = range_of(target, 2.0 ** (number // 8 % 7 - 9), ends[side] + distance)
    return case.but(ranges={**case.ranges, name: moved})
