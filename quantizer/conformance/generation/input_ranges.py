"""The range of a case's input where a kernel depends on its zero point: from 0 up, as after relu, or around 0.

Kernels leave out the term of a zero point that is 0, and fill padding with it. Drawn ranges nearly always lie on both
sides of 0 and give it other codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range

DRAWN, ABOVE, AROUND = "drawn", "above", "around"
KINDS = (DRAWN, ABOVE, ABOVE, AROUND)
"""Kinds of ranges, one of which a hash chooses. Around 0, the zero point is the middle code."""


def with_input_range(
    target: Target, bound: Mapping[str, Any], present: Sequence[str], number: int, chooser: HashChoices
) -> Case:
    """Return the case of random data with these sizes and attributes; *number* chooses its input's kind of range."""
    case = complete(target, bound, present, "random", number % (1 << 32), chooser)
    given = _given(target, case, KINDS[number // 128 % len(KINDS)])
    return complete(target, bound, present, "random", number % (1 << 32), chooser, given) if given else case


def _given(target: Target, case: Case, kind: str) -> dict[str, Range]:
    """Return the range of the first activation; none if it is kept, or decided by the operator."""
    name = next(iter(target.spec.activations))
    item = target.spec.inputs[name]
    if kind == DRAWN or item.kind != "value" or item.domain or name not in case.ranges:
        return {}
    width = max(map(abs, case.ranges[name]))
    # one more code lies below the middle one than above it
    half = 1 << (target.scheme.activation.bits - 1)
    low = 0.0 if kind == ABOVE else -width * half / (half - 1)
    return {name: (low, width)} if math.isfinite(low) else {}
