"""Cases in which the first operand is broadcast along the second, which is longer than a vector.

Kernels swap the operands so that the second is the repeated one. They must then also swap scales, zero points and the
order of a difference. Drawn shapes broadcast only the second operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables

SHAPES = (((1,), (33,)), ((1, 1), (3, 17)), ((3, 1), (3, 33)), ((2, 1, 17), (2, 5, 17)), ((), (40,)), ((17,), (2, 17)))
"""Shapes of the first and the second operand: one element, none of the axes, rows, and a whole axis repeated."""
MUTUAL = (
    ((3, 1), (1, 17)),
    ((2, 33, 1, 1), (2, 1, 3, 5)),
    ((1, 1, 1, 9), (2, 5, 3, 9)),
    ((2, 3, 2, 1, 5), (2, 1, 2, 4, 5)),
    ((2, 3, 2, 1, 4, 9), (1, 1, 1, 1, 1, 9)),
    ((2, 1, 2, 1, 2, 3, 5), (2, 3, 2, 1, 2, 3, 5)),
    ((1, 17, 1), (9,)),
    ((9,), (1, 17, 1)),
    ((2, 17), ()),
)
"""Pairs of shapes that may both be repeated along an axis of the other: a column and a row; a number for each channel
and an image of one channel; a first row for a whole image; more axes than kernels have loops; a column of three axes
beside a row of one, in either order. In the last pair, the second shape has no axis. A platform's targets share these
cases, for each operand that may be repeated.
"""
MOST_AXES = 7
"""The most axes of an operand: a product of matrices has two in addition to those in MUTUAL."""
Pair = tuple[tuple[int, ...], tuple[int, ...]]


def first_broadcast(target: Target) -> list[Case]:
    """Return a case of a target whose second operand may have another shape. A hash of the target chooses them."""
    number, names = key(0, target.id, "first_broadcast"), _repeated(target)
    if not names:
        return []
    return _case(target, number, SHAPES[number % len(SHAPES)], names[number // len(SHAPES) % len(names)])


def mutual_broadcast(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of MUTUAL that its platform's targets have."""
    names = _repeated(target)
    kinds = dealt(everything, target, [(pair, name) for name in names for pair in MUTUAL], "mutual_broadcast")
    found = list[Case]()
    for pair, name in kinds:
        number = key(0, target.id, "mutual_broadcast", str(pair), *([name] if len(names) > 1 else []))
        found += _case(target, number, pair, name)
    return found


def _repeated(target: Target) -> list[str]:
    """Return the shapes that broadcast to the first operand's; none unless all of them broadcast to the same shape."""
    dims = target.spec.dims
    names = [name for name, domain in dims.items() if domain.broadcasts_to]
    return names if len({str(dims[name].broadcasts_to) for name in names}) == 1 and is_ours(target.spec) else []


def _case(target: Target, number: int, pair: Pair, other: str) -> list[Case]:
    """Return the case with these two shapes, of the first operand and of *other*; all further ones have the first."""
    spec = target.spec
    shape = str(spec.dims[other].broadcasts_to)
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    first, second = pair
    fixed = {shape: first, **dict.fromkeys(_repeated(target), first), other: second}
    bound: dict[str, Any] = {}
    try:
        for name in draw_order(spec):
            value = draw(name, spec.dims.get(name) or spec.attrs[name], chooser, bound)
            bound[name] = fixed.get(name, value)
        shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
        check(spec, variables(spec, shapes, {name: bound[name] for name in spec.attrs}))
    except ILLEGAL:
        return []
    if max(map(len, shapes.values())) > MOST_AXES:
        return []
    return [complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)]
