"""Cases of tables that are repeated along each other's axes, and of three operands with unlike numbers of axes.

Kernels of element-wise operators have loops of their own for a row, a column and one number in either operand, also
where both have one place. Drawn shapes repeat the second operand, and those of three operands have equal numbers of
axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from quantizer.conformance.generation.case_classes.first_broadcast import Pair, case_of_shapes, repeated_shapes
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.fixed_sizes import of_fixed
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.case import Case

TABLE = (3, 9)
"""Sizes of the two axes of a table, of which each operand has one place or all."""
UNLIKE = ((1,), (4, 9), (2, 3, 1, 4, 9))
"""Shapes of three operands with unlike numbers of axes, in each order: one number, a table, and more axes than images.
An operator's targets share these cases."""


def tables(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of all pairs of tables that its operator's targets have."""
    names, found = repeated_shapes(target), list[Case]()
    for pair in spread(everything, target, _pairs() if names else (), "tables"):
        number = key(0, target.id, "tables", str(pair))
        found += case_of_shapes(target, number, pair, names[number % len(names)])
    return found


def unlike_axes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of UNLIKE that its operator's targets have, if it has three operands."""
    names = repeated_shapes(target)
    orders = list(itertools.permutations(UNLIKE)) if len(names) == len(UNLIKE) - 1 else []
    made = []
    for order in spread(everything, target, orders, "unlike_axes"):
        shape = str(target.spec.dims[names[0]].broadcasts_to)
        fixed = dict(zip((shape, *names), order, strict=True))
        made.append(of_fixed(target, fixed, key(0, target.id, "unlike_axes", str(order))))
    return [case for case in made if case is not None]


def _pairs() -> list[Pair]:
    """Return each pair of shapes of two axes in which an operand is repeated, with one place of both along some."""
    shapes = list(itertools.product(*((1, size) for size in TABLE)))
    return [(first, second) for first, second in itertools.product(shapes, repeat=2) if first != second]
