"""Cases of operators that take the size of their output, with the ratios of sizes that networks use.

Engines have kernels for doubling. Independently drawn sizes seldom have such a ratio on both axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt, spread
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables
from quantizer.core.spec import Spec

DOUBLE = (2, 1)
OTHERS = ((1, 2), (3, 2), (4, 1), (2, 3), (3, 10), (5, 3), (3, 4))
"""Output size over input size, along both axes or along one. With 3 over 10, places lie on ties or next to them."""
ASKED = "size"
"""Name of the attribute that gives the output's size along each of the input's last axes."""
KEPT = 3
"""One in this many cases keeps the size of the first axis, and one keeps that of the second."""
DOUBLED = 2
"""The number of a target's cases that double. For each combination of modes, one more case has another ratio, along one
axis or both."""
TRIPLE = (3, 1)
"""Ratio along both axes, in one case per platform for each choice of the first attribute that is a name. The middle one
of three places lies on an element in some modes, and between two in others."""
LONG = (64, 128)
"""Size of the last axis in a last case, chosen so that the step in fixed point is exact and many places of the output
lie on ties. In one of the combinations of modes, the output has WIDER times as many."""
SHORTER, ROW = (3, 5), 20
"""Ratio and size of a row that becomes shorter, in one case per operator for each choice of the first attribute that is
a name: whether places are centres or corners shows where no ratio is whole."""
WIDER = ((5, 4), (3, 4), (1, 2))


def usual_sizes(target: Target) -> list[Case]:
    """Return the cases of a target whose operator resizes. A hash of the target chooses the ratios."""
    domain = target.spec.attrs.get(ASKED)
    if domain is None or domain.length is None:
        return []
    modes: list[dict[str, str]] = [{}] * DOUBLED + combinations(target.spec)
    cases = [_case(target, row, mode) for row, mode in enumerate(modes)] + [_long(target)]
    return [case for case in cases if case is not None]


def tripled(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of TRIPLE that its platform's targets have."""
    domain = target.spec.attrs.get(ASKED)
    if domain is None or domain.length is None:
        return []
    modes = list(first_modes(target.spec))
    found = [_tripled(target, mode) for mode in dealt(everything, target, modes, "tripled")]
    return [case for case in found if case is not None]


def shortened(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of SHORTER that its operator's targets have."""
    domain = target.spec.attrs.get(ASKED)
    if domain is None or domain.length is None:
        return []
    modes = first_modes(target.spec)
    found = [_shortened(target, modes[mode]) for mode in spread(everything, target, list(modes), "shortened")]
    return [case for case in found if case is not None]


def first_modes(spec: Spec) -> dict[str, dict[str, str]]:
    """Return one combination for each choice of the first attribute that is a name."""
    modes: dict[str, dict[str, str]] = {}
    for mode in combinations(spec):
        modes.setdefault(next(iter(mode.values()), ""), mode)
    return modes


def _tripled(target: Target, first: str) -> Case | None:
    spec, number = target.spec, key(0, target.id, "tripled", first)
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    modes = [mode for mode in combinations(spec) if next(iter(mode.values()), "") == first]
    try:
        bound = _bound(spec, TRIPLE, chooser, modes[number % len(modes)], kept=None)
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _shortened(target: Target, mode: Mapping[str, str]) -> Case | None:
    """Return the case of a row that becomes shorter, by a ratio that leaves a rest."""
    spec, number = target.spec, key(0, target.id, "shortened", *mode.values())
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    try:
        bound = _bound(spec, SHORTER, chooser, mode, kept=0, last=ROW)
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def combinations(spec: Spec) -> list[dict[str, str]]:
    """Return every combination of the choices of the attributes that are names."""
    names = [name for name, domain in spec.attrs.items() if domain.type == "enum"]
    choices = [[str(choice) for choice in spec.attrs[name].choices or ()] for name in names]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*choices)]


def _case(target: Target, row: int, mode: Mapping[str, str]) -> Case | None:
    spec, number = target.spec, key(row, target.id, "usual_sizes")
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    try:
        ratio = DOUBLE if row < DOUBLED else OTHERS[number % len(OTHERS)]
        bound = _bound(spec, ratio, chooser, mode, kept=None if row < DOUBLED else number // 16 % KEPT)
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _long(target: Target) -> Case | None:
    """Return the case with a long last axis and size 1 along the others."""
    spec, number = target.spec, key(0, target.id, "long_sizes")
    chooser, modes = HashChoices(number, {"data": "random", "tiles": "untiled"}), combinations(spec)
    size, ratio = LONG[number % len(LONG)], WIDER[number // 2 % len(WIDER)]
    try:
        bound = _bound(spec, ratio, chooser, modes[number // 8 % len(modes)] if modes else {}, kept=0, last=size)
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _bound(
    spec: Spec, ratio: tuple[int, int], chooser: HashChoices, mode: Mapping[str, str], kept: int | None, last: int = 0
) -> dict[str, Any]:
    """Return input sizes that are multiples of the ratio's denominator, and the output sizes.

    *kept*: the axis whose size does not change, or None. *last*: the size of the last axis, while the others have size
    1; if it is 0, all sizes are drawn.
    """
    many, of = ratio
    bound: dict[str, Any] = {
        name: draw(name, spec.dims.get(name) or spec.attrs[name], chooser, {}) for name in draw_order(spec)
    } | dict(mode)
    axes = spec.inputs[next(iter(spec.activations))].axes
    spatial = [axis.text for axis in axes[-len(bound[ASKED]) :]] if isinstance(axes, list) else []
    for name in spatial:
        # rounded up to a multiple of the denominator
        bound[name] = -(-bound[name] // of) * of if not last else last if name == spatial[-1] else 1
    sizes = [bound[name] * many // of for name in spatial]
    bound[ASKED] = tuple(
        bound[name] if axis == kept else size for axis, (name, size) in enumerate(zip(spatial, sizes, strict=True))
    )
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    check(spec, variables(spec, shapes, {name: bound[name] for name in spec.attrs}))
    return bound
