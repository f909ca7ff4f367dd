"""Cases with some sizes and attributes fixed and the others drawn, of one data set and without tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import ChoiceSource, HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.units import ILLEGAL
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables
from quantizer.core.spec import Spec


def of_fixed(
    target: Target, fixed: Mapping[str, Any], number: int, given: Mapping[str, Range] | None = None
) -> Case | None:
    """Return a case with these sizes, attributes and ranges, the others as drawn; None if it is illegal."""
    chooser = plain_choices(number)
    bound = drawn_with(target.spec, fixed, chooser)
    if bound is None or not is_legal(target.spec, bound):
        return None
    return completed(target, bound, number, chooser, given)


def drawn_with(spec: Spec, fixed: Mapping[str, Any], chooser: ChoiceSource) -> dict[str, Any] | None:
    """Return all sizes and attributes, *fixed* ones and drawn ones; None if one of these has no legal value then."""
    bound: dict[str, Any] = {}
    try:
        for name in draw_order(spec):
            domain = spec.dims.get(name) or spec.attrs[name]
            bound[name] = fixed[name] if name in fixed else draw(name, domain, chooser, bound)
    except ILLEGAL:
        return None
    return bound


def is_legal(spec: Spec, bound: Mapping[str, Any]) -> bool:
    """Return whether the spec's constraints hold for these sizes and attributes."""
    try:
        shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
        check(spec, variables(spec, shapes, {name: bound[name] for name in spec.attrs}))
    except ILLEGAL:
        return False
    return True


def plain_choices(number: int) -> HashChoices:
    """Return the choices of *number*: random data, no tiles."""
    return HashChoices(number, {"data": "random", "tiles": "untiled"})


def completed(
    target: Target,
    bound: dict[str, Any],
    number: int,
    chooser: HashChoices,
    given: Mapping[str, Range] | None = None,
) -> Case:
    """Return the case of these sizes and attributes with all operands; *given*: ranges that are not drawn."""
    data = "random" if "random" in target.spec.data else target.spec.data[0]
    return complete(target, bound, list(target.spec.inputs), data, number % (1 << 32), chooser, given)
