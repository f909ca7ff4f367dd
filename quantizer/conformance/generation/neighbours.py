"""Cases that differ in one thing alone: what goes wrong where a result is kept from run to run under too short a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import activation_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case, TilePlan
from quantizer.core.domains import ends
from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import infer_shapes, limits, variables

DRAWS = 4
"""How often another value of an attribute is drawn before it counts as having none."""


def neighbours(target: Target) -> list[Case]:
    """Return a case, the same with other data, with each attribute and each zero point changed, and the first again."""
    row = {"data": "random"} if "random" in target.spec.data else {}
    first = build_case(target, HashChooser(key(0, target.id, "neighbours"), row)).but(tiles=TilePlan({}))
    other = first.but(data=replace(first.data, seed=first.data.seed ^ 1))
    return [first, other, *_attributes(target, first), *_zero_points(target, first), first]


def _attributes(target: Target, case: Case) -> Iterator[Case]:
    """Yield the case with another value of each attribute that has one for these shapes."""
    spec = target.spec
    for name, domain in spec.attrs.items():
        bound = variables(spec, case.shapes, case.attrs)
        for attempt in range(DRAWS):
            value = draw(name, domain, HashChooser(key(attempt, target.id, name), {}), bound)
            changed = case.but(attrs={**case.attrs, name: value})
            if value != case.attrs[name] and _is_legal(target, changed):
                yield changed
                break


def _is_legal(target: Target, case: Case) -> bool:
    """Return whether the spec takes the case, every integer within its domain."""
    spec = target.spec
    try:
        infer_shapes(spec, case.shapes, case.attrs)
        bound = variables(spec, case.shapes, case.attrs)
        whole = {name: domain for name, domain in spec.attrs.items() if domain.type == "int" and not domain.choices}
        spans = [
            (ends(domain, bound, high=False), bound[name], ends(domain, bound, high=True))
            for name, domain in whole.items()
        ]
    except QuantizerError:
        return False
    return all(np.all(np.less_equal(low, value)) and np.all(np.less_equal(value, high)) for low, value, high in spans)


def _zero_points(target: Target, case: Case) -> Iterator[Case]:
    """Yield the case with the range of each activation moved: the same scale, another zero point."""
    spec = target.spec
    if spec.quantization.family in target.platform.shared_parameters:
        return
    for name in spec.coded:
        if name not in case.ranges:
            continue
        low, high = case.ranges[name]
        least, most = limits(spec.inputs[name], variables(spec, case.shapes, case.attrs))
        known = activation_of(target, case, name)
        for by in ((high - low) / 4, (low - high) / 4, (high - low) / 16, (low - high) / 16):
            moved = (low + by, high + by)
            if not (max(least, moved[0]) <= 0.0 <= min(most, moved[1]) and least <= moved[0] and moved[1] <= most):
                continue
            changed = case.but(ranges={**case.ranges, name: moved})
            params = activation_of(target, changed, name)
            if params.scale == known.scale and params.zero_point != known.zero_point:
                yield changed
                break
