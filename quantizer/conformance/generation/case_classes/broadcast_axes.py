"""Cases of every way in which two shapes repeat each other: each axis is common, or one of the two has size 1.

Kernels merge neighbouring axes of one kind, exchange the operands, and have a loop for each alternation. Most drawn
shapes repeat the second operand alone, along few axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from quantizer.conformance.generation.case_classes.first_broadcast import case_of_shapes, repeated_shapes
from quantizer.conformance.generation.dealing import share
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.case import Case

COMMON, FIRST, SECOND = "common", "first", "second"
ROWS, IMAGES = ((3, 16, 8), (2, 5, 19), (16, 3, 5)), ((2, 16, 3, 5), (2, 3, 4, 16), (1, 19, 3, 8))
"""Shapes of three and of four axes: whole vectors, and rests. Patterns take them in turn."""
KINDS = (
    *itertools.product((COMMON, FIRST, SECOND), repeat=len(ROWS[0])),
    *itertools.product((COMMON, SECOND), repeat=len(IMAGES[0])),
)
"""For each axis, whether it is common or which operand is repeated along it. Of four axes, only the second one is."""
PATTERNS = tuple(kind for kind in KINDS if set(kind) != {COMMON})


def broadcast_axes(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases of PATTERNS; its operator's targets share them, or its platform's."""
    names, found = repeated_shapes(target), list[Case]()
    for pattern in share(everything, target, PATTERNS if names else (), "broadcast_axes", strong=strong):
        shapes = ROWS if len(pattern) == len(ROWS[0]) else IMAGES
        sizes = shapes[PATTERNS.index(pattern) % len(shapes)]
        first = tuple(1 if kind == FIRST else size for kind, size in zip(pattern, sizes, strict=True))
        second = tuple(1 if kind == SECOND else size for kind, size in zip(pattern, sizes, strict=True))
        number = key(0, target.id, "broadcast_axes", *pattern)
        found += case_of_shapes(target, number, (first, second), names[number % len(names)])
    return found
