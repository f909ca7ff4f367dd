"""Cases in which the first operand is broadcast along the second, which is longer than a vector.

Kernels swap the operands so that the second is the repeated one. They must then also swap scales, zero points and the
order of a difference. Drawn shapes broadcast only the second operand.
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
TABLE = (3, 9)
"""Sizes of the two axes of a table, of which each operand has one place or all."""
UNLIKE = ((1,), (4, 9), (2, 3, 1, 4, 9))
"""Shapes of three operands with unlike numbers of axes, in each order: one number, a table, and more axes than images.
An operator's targets share these cases."""
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


def fewer_axes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of FEWER that its operator's targets have."""
    names, found = _repeated(target), list[Case]()
    for pair in spread(everything, target, FEWER if names else (), "fewer_axes"):
        number = key(0, target.id, "fewer_axes", str(pair))
        found += _case(target, number, pair, names[number % len(names)])
    return found


def tables(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of all pairs of tables that its operator's targets have."""
    names, found = _repeated(target), list[Case]()
    for pair in spread(everything, target, _pairs_of_tables() if names else (), "tables"):
        number = key(0, target.id, "tables", str(pair))
        found += _case(target, number, pair, names[number % len(names)])
    return found


def _pairs_of_tables() -> list[Pair]:
    """Return each pair of shapes of two axes in which an operand is repeated, and one place along an axis of both."""
    shapes = list(itertools.product(*((1, size) for size in TABLE)))
    return [(first, second) for first, second in itertools.product(shapes, repeat=2) if first != second]


def unlike_axes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of UNLIKE that its operator's targets have, if it has three operands."""
    names, found = _repeated(target), list[Case]()
    orders = list(itertools.permutations(UNLIKE)) if len(names) == len(UNLIKE) - 1 else []
    for first, *others in spread(everything, target, orders, "unlike_axes"):
        number = key(0, target.id, "unlike_axes", str((first, *others)))
        shape = str(target.spec.dims[names[0]].broadcasts_to)
        found += _of_shapes(target, number, {shape: first, **dict(zip(names, others, strict=True))})
    return found


def _past_vectors(shape: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Return the shape with a rest that *number* chooses in place of each rest of one behind vectors of 8."""
    return tuple(size + number % (VECTOR - 1) if size > VECTOR and size % VECTOR == 1 else size for size in shape)


def _repeated(target: Target) -> list[str]:
    """Return the shapes that broadcast to the first operand's; none unless all of them broadcast to the same shape."""
    dims = target.spec.dims
    names = [name for name, domain in dims.items() if domain.broadcasts_to]
    return names if len({str(dims[name].broadcasts_to) for name in names}) == 1 and is_ours(target.spec) else []


def _case(target: Target, number: int, pair: Pair, other: str) -> list[Case]:
    """Return the case with these two shapes, of the first operand and of *other*; all further ones have the first."""
    shape = str(target.spec.dims[other].broadcasts_to)
    first, second = (_past_vectors(each, number // 64) for each in pair)
    return _of_shapes(target, number, {shape: first, **dict.fromkeys(_repeated(target), first), other: second})


def _of_shapes(target: Target, number: int, fixed: Mapping[str, tuple[int, ...]]) -> list[Case]:
    """Return the case with these shapes; none if they are illegal or an operand has too many axes."""
    spec = target.spec
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
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
