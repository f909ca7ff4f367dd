"""Cases whose activations have a pattern, under zero points beside an end or beside 0.

Kernels skip zeros, search in order, and reduce lanes and rows. Their result may depend on the place of a value, which
random data rarely shows.
"""

from __future__ import annotations

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import activation_of, range_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case

CASES = 4
"""Cases of a target. The targets of an operator get different patterns and zero points."""
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
    case = build_case(target, HashChoices(number, {"data": "patterns"}))
    values = [n for n in target.spec.activations if n in case.ranges and target.spec.inputs[n].kind == "value"]
    if not values or row % 2 or target.spec.inputs[values[0]].domain:
        return case
    return _moved(target, case, values[0], number // 16)


def _moved(target: Target, case: Case, name: str, number: int) -> Case:
    """Return the case with a range of *name* that gives a zero point in BESIDE, if its range is free."""
    params = activation_of(target, case, name)
    ends = {"first": params.qmin, "last": params.qmax, "zero": 0 if params.qmin < 0 else (params.qmax + 1) // 2}
    side, distance = BESIDE[number % len(BESIDE)]
    moved = range_of(target, 2.0 ** (number // 8 % 7 - 9), ends[side] + distance)
    return case.but(ranges={**case.ranges, name: moved})
