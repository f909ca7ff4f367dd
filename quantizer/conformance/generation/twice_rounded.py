"""Cases that show whether a platform rounds a scaled sum twice, because a single rounding gives other codes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.platforms import FirstRounding, RoundingMode
from quantizer.runtime.engines.builtin import BuiltinEngine

CASES = 3
"""Cases per target in which one rounding gives other codes."""
SEARCHED = 160
"""Drawn cases that are searched. At 8 fractional bits, one rounding changes one sum in 512."""
KINDS = ("linear", "selection", "mean", "bilinear")
"""Error models whose sums a multiplier brings to codes."""
RIVALS: tuple[RoundingMode, ...] = ("half_even", "half_up", "half_down", "half_away", "half_toward_zero")
"""Modes of the first rounding that differ only on its ties."""
TIED = 160
"""Drawn cases that are searched for each of them."""


def twice_rounded(target: Target) -> list[Case]:
    """Return cases in which another first rounding moves a sum over a tie of the second one: none, or of another mode.

    A sum does so within half a unit of the first rounding next to a tie, so that random data seldom do, and a kernel
    that rounds once would pass. No cases for platforms that round once.
    """
    first = target.platform.first_rounding
    if first is None or target.spec.error_model.kind not in KINDS:
        return []
    found = (case for case in _drawn(target, "random", SEARCHED) if _differs(target, None, case))
    modes = [mode for mode in RIVALS if mode != first.rounding and first.rounding in RIVALS]
    rivals = [first.model_copy(update={"rounding": mode}) for mode in modes]
    return [*itertools.islice(found, CASES), *_of_modes(target, rivals)]


def _of_modes(target: Target, rivals: list[FirstRounding]) -> Iterator[Case]:
    """Yield cases of ties of the first rounding until each rival has one that shows it, where there is one."""
    for case in _drawn(target, "ties", TIED) if rivals else ():
        shown = [rival for rival in rivals if _differs(target, rival, case)]
        if shown:
            yield case
        rivals = [rival for rival in rivals if rival not in shown]
        if not rivals:
            return


def _drawn(target: Target, data: str, count: int) -> Iterator[Case]:
    for index in range(count):
        yield build_case(target, HashChoices(key(index, target.id, "twice_rounded"), {"data": data}))


def _differs(target: Target, first: FirstRounding | None, case: Case) -> bool:
    """Return whether another first rounding gives other codes."""
    rival = replace(target, platform=target.platform.model_copy(update={"first_rounding": first}))
    own_codes, other_codes = (Trial(one, case, BuiltinEngine()).got for one in (target, rival))
    return not np.array_equal(own_codes, other_codes)
