"""Cases with sums next to a tie but not on it: a slightly different arithmetic rounds them to another code."""

from __future__ import annotations

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.near_sums import is_near_sum
from quantizer.conformance.generation.room_sums import has_own_rule
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.platform_settings import NARROW_BITS

CASES, OF_PRODUCTS = 8, 4
"""The number of cases of one target. For sums of products, each channel has a sum next to a tie."""


def near_ties(target: Target) -> list[Case]:
    """Return cases of sums of products that have a bias, and of sums and means of one operand of more than 8 bits.

    A room's own rule may round ties in its own way, so its products get ties, too.

    Few sums of narrow codes without a bias lie near a tie, and the cases of every code cover all of them.
    """
    kind, operands = target.spec.error_model.kind, target.spec.inputs
    wide = kind in ("linear", "mean") and len(operands) == 1 and target.scheme.activation.bits > NARROW_BITS
    # A mean at its input's scale is a fraction with a small denominator, so it lies on a tie or far from one.
    # A negation needs no rounding.
    wide = wide and target.spec.quantization.family not in target.platform.same_as_input
    if not wide and not is_near_sum(target):
        return []
    row = {f"with_{name}": "yes" for name, item in operands.items() if item.optional}
    row |= {"activation": "none"} if is_near_sum(target) else {}
    count = OF_PRODUCTS if is_near_sum(target) and not has_own_rule(target) else CASES
    sets = ("near_ties", "ties") if has_own_rule(target) else ("near_ties",)
    return [
        build_case(target, HashChoices(key(index, target.id, name), row | {"data": name}))
        for name in sets
        for index in range(count)
    ]
