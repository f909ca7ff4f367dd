"""Sums of wide codes that lie next to a tie and on none: what float32 rounds to the wrong side."""

from __future__ import annotations

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.platforms import NARROW_BITS

CASES = 8
"""Cases of one target."""


def near_ties(target: Target) -> list[Case]:
    """Return cases of sums and means of one operand whose codes have more than 8 bits; of narrow ones few lie near a tie."""
    kind, operands = target.spec.error_model.kind, target.spec.inputs
    if kind not in ("linear", "mean") or len(operands) > 1 or target.scheme.activation.bits <= NARROW_BITS:
        return []
    return [
        build_case(target, HashChooser(key(index, target.id, "near_ties"), {"data": "near_ties"}))
        for index in range(CASES)
    ]
