"""Cases under ranges that rows seldom draw: a thousand times smaller or larger, and ranges that begin or end at 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import Change, activation_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range

FACTORS: tuple[Mapping[str, float], ...] = (
    {"activation": 2.0**-10, "weight": 2.0**-6, "bias": 2.0**-16},
    {"activation": 2.0**10, "weight": 2.0**6, "bias": 2.0**16},
    {"activation": 2.0**10, "weight": 2.0**-6, "bias": 2.0**4},
)
"""Factors of the ranges of each role, with one case per entry; the last one is for operators with constants."""
HUGE: Mapping[str, float] = {"activation": 2.0**33, "weight": 1.0, "bias": 2.0**33}
"""Scales beyond the integers of float32. They replace the second entry on platforms with WIDE ratios.

Multipliers of few bits, tables of a fixed unit and functions with a fixed output scale end far below this.
Among operators with constants, every second target has them.
"""
TINY = 2.0**-30
"""A factor under which only the slope at 0 counts. Kernels subtract nearly equal numbers there. A platform's targets
share the case."""
FAR = 2.0**8
"""The range of softmax's operand begins this far below 0 and ends at 0. A kernel that does not subtract the largest
number has only zeros there. A platform's targets share the case."""
FUNCTIONS = ("monotone", "piecewise_monotone", "set_valued")
"""Error models of functions of one operand without poles."""
SOFTMAX = "softmax"
"""Error model of operators that take exponents of differences from the largest number."""
WIDE = ("exact", "f32")
"""Prefixes of the requantizations whose ratio is exact or a float32 number."""
FARTHEST = 2.0**40
"""No requested range goes beyond this value."""


def scaled(target: Target) -> list[Case]:
    """Return a case for each of FACTORS."""
    items = target.spec.inputs
    constants = any(item.role != "activation" for item in items.values())

    def case_of(index: int, factors: Mapping[str, float]) -> Case:
        return _random(target, f"scaled.{index}", ranges_times({n: factors[item.role] for n, item in items.items()}))

    cases = [case_of(index, factors) for index, factors in enumerate(FACTORS if constants else FACTORS[:2])]
    fixed = target.spec.op in target.platform.fixed_outputs
    # a tuple of prefixes: str.startswith accepts any of them
    wide = target.platform.requantize["default"].startswith(WIDE) and not fixed
    if wide and (not constants or key(0, target.id, "huge") % 2):
        huge = case_of(1, HUGE)
        cases[1] = huge if is_near(huge) else cases[1]
    return [case for case in cases if is_near(case)]


def tiny(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the case with ranges scaled by TINY.

    One target of a platform has it, if the operator is a function and its scales are free.
    """
    spec = target.spec
    is_function = spec.error_model.kind in FUNCTIONS and len(spec.inputs) == 1
    if not is_function or spec.op in target.platform.fixed_outputs:
        return []
    made = [_random(target, "tiny", ranges_times(dict.fromkeys(spec.inputs, TINY)))]
    return [case for _ in dealt(everything, target, (TINY,), "tiny") for case in made if is_near(case)]


def far_below(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the case of FAR that one of a platform's targets has, if the operator is a softmax."""
    if target.spec.error_model.kind != SOFTMAX:
        return []
    made = _random(target, "far_below", lambda _name, _span: (-FAR, 0.0))
    return [made for _ in dealt(everything, target, (FAR,), "far_below")]


def one_sided(target: Target) -> list[Case]:
    """Return, for each activation, a case whose range begins at 0 and a case whose range ends at 0.

    There is no case if the zero point is then not the first or the last code, as with symmetric codes, or if the domain
    cuts the range.
    """
    cases = []
    for name in target.spec.coded:
        for low in (0.0, -1.0):
            case = _random(target, f"one_sided.{name}.{low}", _beside_zero(name, low))
            params = activation_of(target, case, name)
            if int(params.zero_point) in (params.qmin, params.qmax):
                cases.append(case)
    return cases


def ranges_times(factors: Mapping[str, float]) -> Change:
    """Return the change that multiplies the range of each operand by its own of *factors*."""
    return lambda name, span: (span[0] * factors[name], span[1] * factors[name])


def _beside_zero(moved: str, low: float) -> Change:
    def change(name: str, span: Range) -> Range:
        width = span[1] - span[0]
        return (low * width, (low + 1.0) * width) if name == moved else span

    return change


def _random(target: Target, salt: str, change: Change) -> Case:
    """Return a case with every operand, and with the data set `random` if the operator has it."""
    row = {f"with_{name}": "yes" for name, item in target.spec.inputs.items() if item.optional}
    row |= {"data": "random"} if "random" in target.spec.data else {}
    return build_case(target, HashChoices(key(0, target.id, salt), row), change)


def is_near(case: Case) -> bool:
    """Return whether all ranges lie within FARTHEST. Ranges of functions that grow fast do not."""
    return all(abs(end) <= FARTHEST for span in case.ranges.values() for end in span)
