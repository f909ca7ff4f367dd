"""Cases under ranges a thousand times smaller and larger than rows draw: as few calibrations give them, and some do."""

from __future__ import annotations

from collections.abc import Mapping

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.case import Case

FACTORS: tuple[Mapping[str, float], ...] = (
    {"activation": 2.0**-10, "weight": 2.0**-6, "bias": 2.0**-16},
    {"activation": 2.0**10, "weight": 2.0**6, "bias": 2.0**16},
    {"activation": 2.0**10, "weight": 2.0**-6, "bias": 2.0**4},
)
"""What the ranges of each role are multiplied by, a case each; the last one is for operators with constants."""
FARTHEST = 2.0**40
"""Beyond it no range is asked for."""


def scaled(target: Target) -> list[Case]:
    """Return a case for each of FACTORS, with the data set `random` where the operator has it."""
    spec = target.spec
    row = {"data": "random"} if "random" in spec.data else {}
    constants = any(item.role != "activation" for item in spec.inputs.values())
    choosers = [HashChooser(key(index, target.id, "scaled"), row) for index in range(len(FACTORS) if constants else 2)]
    cases = [build_case(target, chooser, factors) for chooser, factors in zip(choosers, FACTORS, strict=False)]
    return [case for case in cases if is_near(case)]


def is_near(case: Case) -> bool:
    """Return whether no range reaches beyond FARTHEST, as those of functions that grow fast do."""
    return all(abs(end) <= FARTHEST for span in case.ranges.values() for end in span)
