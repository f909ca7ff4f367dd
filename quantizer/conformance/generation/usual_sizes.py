"""Cases of operators that are told the size of their output: ratios to the size of the input that networks have.

Engines have kernels for doubling. Independently drawn sizes seldom have such a ratio on both axes.
"""

from __future__ import annotations

from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables
from quantizer.core.spec import Spec

DOUBLE, OTHERS = (2, 1), ((1, 2), (3, 2), (1, 1), (4, 1))
"""Places of the output over those of the input, the same along both axes."""
ASKED = "size"
"""The attribute: how many places the output has along each of the input's last axes."""
DOUBLED = 2
"""Cases of a target that double; one more has another ratio."""


def usual_sizes(target: Target) -> list[Case]:
    """Return the cases of a target whose operator resizes; the targets share the ratios out."""
    domain = target.spec.attrs.get(ASKED)
    if domain is None or domain.length is None:
        return []
    return [case for row in range(DOUBLED + 1) if (case := _case(target, row)) is not None]


def _case(target: Target, row: int) -> Case | None:
    spec, number = target.spec, key(row, target.id, "usual_sizes")
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    try:
        bound = _bound(spec, DOUBLE if row < DOUBLED else OTHERS[number % len(OTHERS)], chooser)
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _bound(spec: Spec, ratio: tuple[int, int], chooser: HashChoices) -> dict[str, Any]:
    """Return input sizes that are multiples of the ratio's denominator, and the output sizes."""
    many, of = ratio
    bound: dict[str, Any] = {
        name: draw(name, spec.dims.get(name) or spec.attrs[name], chooser, {}) for name in draw_order(spec)
    }
    axes = spec.inputs[next(iter(spec.activations))].axes
    spatial = [axis.text for axis in axes[-len(bound[ASKED]) :]] if isinstance(axes, list) else []
    for name in spatial:
        bound[name] = -(-bound[name] // of) * of
    bound[ASKED] = tuple(bound[name] * many // of for name in spatial)
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    check(spec, variables(spec, shapes, {name: bound[name] for name in spec.attrs}))
    return bound
