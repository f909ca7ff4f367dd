"""Cases that show whether a platform rounds a scaled sum twice, because a single rounding gives other codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.runtime.engines.builtin import BuiltinEngine

CASES = 3
"""Cases per target."""
SEARCHED = 160
"""Drawn cases that are searched. At 8 fractional bits, one rounding changes one sum in 512."""
KINDS = ("linear", "selection", "mean", "bilinear")
"""Error models whose sums a multiplier brings to codes."""


def twice_rounded(target: Target) -> list[Case]:
    """Return cases in which the first rounding of the platform moves a sum over a tie of the second one.

    A sum does so within half a unit of the first rounding next to a tie, so that random data seldom do, and a kernel
    that rounds once would pass. No cases for platforms that round once.
    """
    platform = target.platform
    if platform.first_rounding is None or target.spec.error_model.kind not in KINDS:
        return []
    once = replace(target, platform=platform.model_copy(update={"first_rounding": None}))
    found: list[Case] = []
    for index in range(SEARCHED):
        case = build_case(target, HashChoices(key(index, target.id, "twice_rounded"), {"data": "random"}))
        if _differs(target, once, case):
            found.append(case)
        if len(found) == CASES:
            break
    return found


def _differs(target: Target, once: Target, case: Case) -> bool:
    """Return whether one rounding gives other codes."""
    twice_codes, once_codes = (Trial(one, case, BuiltinEngine()).got for one in (target, once))
    return not np.array_equal(twice_codes, once_codes)
