"""Cases that differ from another in one thing: they find functions that cache results under an incomplete key."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from quantizer.conformance.generation.builder import build_case, runnable_activations
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key, sample_number
from quantizer.conformance.generation.ranges import activation_of
from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue, Case, TilePlan
from quantizer.core.domains import ends
from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import infer_shapes, limits, variables
from quantizer.core.spec import Domain
from quantizer.numerics.qparams import QParams

DRAWS = 4
"""The number of draws for another value of an attribute before it counts as having only one."""
SHARE = 0.75
"""The share of a range that is left under another scale."""
NEAR = 2.0**-9
"""The distance of a nearby number, as a share of the domain."""


def one_difference_cases(target: Target) -> list[Case]:
    """Return a case, others that differ from it in one thing, and the first again.

    The differences: one optional operand left out; other data; every other choice of an attribute, or another number
    and a nearby one; other zero points.
    """
    optional = {f"with_{name}": "yes" for name, item in target.spec.inputs.items() if item.optional}
    row = {"data": "random", **optional} if "random" in target.spec.data else optional
    first = build_case(target, HashChoices(key(0, target.id, "neighbours"), row)).but(tiles=TilePlan({}))
    # a neighbouring seed gives unrelated data, since seeds are hashed
    other = first.but(data=replace(first.data, seed=first.data.seed ^ 1))
    changed = [other, *_attributes(target, first), *_zero_points(target, first)]
    # the first case again at the end: a function that kept a result of a later one would give it now
    return [first, *_without_operands(target, first), *changed, first]


def neighbours(target: Target, case: Case) -> Iterator[Case]:
    """Yield the cases that differ from *case* in one thing.

    An optional operand, an attribute, a zero point, a scale, the fused activation, or the shapes of the same elements.
    """
    yield from _without_operands(target, case)
    # other values for other cases: a value that is always the same may have no effect
    yield from _attributes(target, case, str(sample_number(case)))
    yield from _zero_points(target, case, outputs=True)
    yield from _scales(target, case)
    yield from (case.but(activation=name) for name in runnable_activations(target) if name != case.activation)
    yield from _turned(target, case)


def _without_operands(target: Target, case: Case) -> Iterator[Case]:
    """Yield the case once without each optional operand that no other operand needs."""
    items = target.spec.inputs
    needed = {items[name].needs for name in case.shapes}
    for name in case.shapes:
        if items[name].optional and name not in needed:
            kept = {other: shape for other, shape in case.shapes.items() if other != name}
            yield case.but(shapes=kept, ranges={other: span for other, span in case.ranges.items() if other != name})


def _attributes(target: Target, case: Case, *salt: str) -> Iterator[Case]:
    """Yield the case with other values of each attribute that has some for these shapes. *salt* chooses the values."""
    for name, domain in target.spec.attrs.items():
        for value in _others(target, case, name, domain, salt):
            changed = case.but(attrs={**case.attrs, name: value})
            if _is_legal(target, changed):
                yield changed


def _others(target: Target, case: Case, name: str, domain: Domain, salt: Sequence[str]) -> Iterator[AttrValue]:
    """Yield every other choice of an enum, or another drawn value; for a float also a value near the old one."""
    known, bound = case.attrs[name], variables(target.spec, case.shapes, case.attrs)
    if domain.type == "enum":
        yield from (cast("str", choice) for choice in domain.choices or [] if choice != known)
        return
    keys = (key(attempt, target.id, name, *salt) for attempt in range(DRAWS))
    drawn = (draw(name, domain, HashChoices(one, {}), bound) for one in keys)
    yield from itertools.islice(
        (value for value in drawn if value != known and _is_legal_value(target, case, name, value)), 1
    )
    if isinstance(known, float) and domain.type == "float" and not domain.choices:
        low, high = (cast("float", ends(domain, bound, high=side)) for side in (False, True))
        # so near that a key of rounded numbers takes both for one
        step = (high - low) * NEAR
        yield known + (step if known + step <= high else -step)


def _is_legal_value(target: Target, case: Case, name: str, value: AttrValue) -> bool:
    return _is_legal(target, case.but(attrs={**case.attrs, name: value}))


def _is_legal(target: Target, case: Case) -> bool:
    """Return whether the spec takes the case, every integer within its domain."""
    spec = target.spec
    try:
        infer_shapes(spec, case.shapes, case.attrs)
        bound = variables(spec, case.shapes, case.attrs)
        whole = {name: domain for name, domain in spec.attrs.items() if domain.type == "int" and not domain.choices}
        return all(_is_within(domain, bound, name) for name, domain in whole.items())
    except QuantizerError:
        return False


def _is_within(domain: Domain, bound: Mapping[str, Any], name: str) -> bool:
    """Return whether the integer, or each integer, of a name lies in its domain."""
    low, high = ends(domain, bound, high=False), ends(domain, bound, high=True)
    return bool(np.all(np.less_equal(low, bound[name])) and np.all(np.less_equal(bound[name], high)))


def _zero_points(target: Target, case: Case, *, outputs: bool = False) -> Iterator[Case]:
    """Yield the case with the range of each activation, or output, moved: the same scale, another zero point."""
    for name, least, most in _movable(target, case, outputs=outputs):
        low, high = case.ranges[name]
        known = activation_of(target, case, name)
        width = high - low
        # both ends move by the same amount, which keeps the width and so the scale
        little = [(low + part * width, high + part * width) for part in (1 / 4, -1 / 4, 1 / 16, -1 / 16)]
        legal = (span for span in little if least <= span[0] <= 0.0 <= span[1] <= most)
        moved = (case.but(ranges={**case.ranges, name: span}) for span in legal)
        yield from itertools.islice((c for c in moved if _moves_alone(activation_of(target, c, name), known)), 1)


def _scales(target: Target, case: Case) -> Iterator[Case]:
    """Yield the case with narrower ranges, one each: another scale, about the same zero point.

    A quarter is cut off the range of each activation, and a little off that of each activation and output: so little
    that a key of rounded numbers takes both for one.
    """
    for share, outputs in ((SHARE, False), (1 - NEAR, True)):
        for name, least, most in _movable(target, case, outputs=outputs):
            low, high = (end * share for end in case.ranges[name])
            if least <= low <= high <= most:
                yield case.but(ranges={**case.ranges, name: (low, high)})


def _turned(target: Target, case: Case) -> Iterator[Case]:
    """Yield the case with the axes of all operands in the reverse order, if it is another legal one."""
    spec = target.spec
    shapes = {name: shape[::-1] for name, shape in case.shapes.items()}
    constants = [name for name in shapes if spec.inputs[name].role != "activation"]
    turned = case.but(shapes=shapes, tiles=TilePlan({}))
    if not constants and shapes != dict(case.shapes) and _is_legal(target, turned):
        bound = variables(spec, shapes, case.attrs)
        sizes = {name: domain for name, domain in spec.dims.items() if domain.type == "int" and name in bound}
        if all(_is_within(domain, bound, name) for name, domain in sizes.items()):
            yield turned


def _movable(target: Target, case: Case, *, outputs: bool) -> Iterator[tuple[str, float, float]]:
    """Yield each activation, and output, whose range may change by itself, with the ends of its domain."""
    spec = target.spec
    if spec.quantization.family in target.platform.shared_parameters:
        return
    bound = variables(spec, case.shapes, case.attrs)
    for name in spec.coded:
        if name in case.ranges:
            yield name, *limits(spec.inputs[name], bound)
    for name, item in spec.outputs.items() if outputs else ():
        if name in case.ranges:
            low = -math.inf if item.min is None else float(item.min(bound))
            high = math.inf if item.max is None else float(item.max(bound))
            yield name, low, high


def _moves_alone(params: QParams, known: QParams) -> bool:
    return bool(params.scale == known.scale and params.zero_point != known.zero_point)
