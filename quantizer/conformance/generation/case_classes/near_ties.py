"""Cases with sums next to a tie but not on it: a slightly different arithmetic rounds them to another code."""

from __future__ import annotations

import numpy as np

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.near_block_sums import KINDS, in_order, is_near_block_sum, sums_of_blocks, unlike
from quantizer.conformance.generation.near_sums import is_near_sum, provided_for
from quantizer.conformance.generation.ranges import activation_of, range_of
from quantizer.conformance.generation.room_sums import has_own_rule
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.platform_settings import NARROW_BITS

CASES, OF_PRODUCTS = 8, 4
"""The number of cases of one target. For sums of products, each channel has a sum next to a tie."""
PLACES = 64
"""The number of sums and codes that are tried for such a scale."""


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
    if target.scheme.grid == "blocks" and not is_near_block_sum(target):
        return [case for i in range(KINDS) if (case := _beside_by_scale(target, i))]
    products = is_near_sum(target) or is_near_block_sum(target)
    if not wide and not products:
        return []
    row = {f"with_{name}": "yes" for name, item in operands.items() if item.optional}
    row |= {"activation": "none"} if products else {}
    count = OF_PRODUCTS if products and not has_own_rule(target) else CASES
    sets = ("near_ties", "ties") if has_own_rule(target) else ("near_ties",)
    return [
        build_case(target, HashChoices(key(index, target.id, name), row | {"data": name}))
        for name in sets
        for index in range(count)
    ]


def _beside_by_scale(target: Target, kind: int) -> Case | None:
    """Return a case whose output scale puts a sum where float32 arithmetic *kind* gives another code."""
    number = key(kind, target.id, "near_scale")
    case = build_case(target, HashChoices(number, {"data": "random", "activation": "none", "tiles": "untiled"}))
    values = {name: tensor.double().numpy() for name, tensor in materialise(target, case).items()}
    parameters = provided_for(target, case, values)
    out, rescale = parameters.outputs["y"], parameters.rescale
    assert rescale is not None
    sums = sums_of_blocks(target, case, values, parameters)
    for place in range(PLACES):
        channel = place % len(sums)
        row = key(number, str(place)) % len(sums[channel])
        multipliers = rescale.mantissa[channel].numpy()
        terms = np.append(sums[channel][row], 0.0)
        total = float(in_order(terms, multipliers))
        # the codes on the sum's side of the zero point: beyond the last one, every arithmetic saturates
        codes = out.qmax - int(out.zero_point) if total > 0.0 else int(out.zero_point) - out.qmin
        code = codes - place // 2 - 0.5
        if total == 0.0 or code < 0.0:
            continue
        scale = float(np.float32(abs(total) / code))
        solved = case.but(ranges={**case.ranges, "y": range_of(target, scale, int(out.zero_point))})
        divisor = float(activation_of(target, solved, "y").scale)
        if unlike(terms[None], multipliers, divisor, (kind,)).any():
            return solved
    return None
