"""Cases in which the first operand is broadcast along the second, which is longer than a vector.

Kernels swap the operands so that the second is the repeated one. They must then also swap scales, zero points and the
order of a difference. Drawn shapes broadcast only the second operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt, spread
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables

SHAPES = (((1,), (33,)), ((1, 1), (3, 17)), ((3, 1), (3, 33)), ((2, 1, 17), (2, 5, 17)), ((), (41,)), ((17,), (2, 17)))
"""Shapes of the first and the second operand: one element, none of the axes, rows, and a whole axis repeated. In these
and in the following ones, a hash chooses the rest behind whole vectors of VECTOR."""
VECTOR = 8
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
FEWER = (
    ((2, 9), (9,)),
    ((2, 9, 3, 5), (9, 1, 1)),
    ((2, 3, 4, 9), (3, 1, 9)),
    ((2, 5, 9), (1,)),
    ((1, 5, 9), (5, 9)),
    ((1, 9, 3, 5), (9, 1, 1)),
    ((1, 3, 4, 9), (3, 1, 9)),
    ((1, 5, 9), (1,)),
)
"""Shapes of which the second has fewer axes. Kernels merge neighbouring axes that are repeated, or that are not: these
are all the ways in which axes alternate after that, behind first axes that are repeated, or that have one place. An
operator's targets share these cases."""
MOST_AXES = 7
"""The most axes of an operand: a product of matrices has two in addition to those in MUTUAL."""
Pair = tuple[tuple[int, ...], tuple[int, ...]]


def first_broadcast(target: Target) -> list[Case]:
    """Return a case of a target whose second operand may have another shape. A hash of the target chooses them."""
    number, names = key(0, target.id, "first_broadcast"), repeated_shapes(target)
    if not names:
        return []
    return case_of_shapes(target, number, SHAPES[number % len(SHAPES)], names[number // len(SHAPES) % len(names)])


def mutual_broadcast(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of MUTUAL that its platform's targets have."""
    names = repeated_shapes(target)
    kinds = dealt(everything, target, [(pair, name) for name in names for pair in MUTUAL], "mutual_broadcast")
    found = list[Case]()
    for pair, name in kinds:
        number = key(0, target.id, "mutual_broadcast", str(pair), *([name] if len(names) > 1 else []))
        found += case_of_shapes(target, number, pair, name)
    return found


def fewer_axes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of FEWER that its operator's targets have."""
    names, found = repeated_shapes(target), list[Case]()
    for pair in spread(everything, target, FEWER if names else (), "fewer_axes"):
        number = key(0, target.id, "fewer_axes", str(pair))
        found += case_of_shapes(target, number, pair, names[number % len(names)])
    return found


def _past_vectors(shape: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Return the shape with a rest that *number* chooses in place of each rest of one behind vectors of 8."""
    return tuple(size + number % (VECTOR - 1) if size > VECTOR and size % VECTOR == 1 else size for size in shape)


def repeated_shapes(target: Target) -> list[str]:
    """Return the shapes that broadcast to the first operand's; none unless all of them broadcast to the same shape."""
    dims = target.spec.dims
    names = [name for name, domain in dims.items() if domain.broadcasts_to]
    return names if len({str(dims[name].broadcasts_to) for name in names}) == 1 and is_ours(target.spec) else []


def case_of_shapes(target: Target, number: int, pair: Pair, other: str) -> list[Case]:
    """Return the case with these two shapes, of the first operand and of *other*; all further ones have the first."""
    spec = target.spec
    shape = str(spec.dims[other].broadcasts_to)
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    first, second = (_past_vectors(each, number // 64) for each in pair)
    fixed = {shape: first, **dict.fromkeys(repeated_shapes(target), first), other: second}
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
