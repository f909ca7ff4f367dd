"""Arguments of the shape rules of Top operators: shapes, axes, broadcasting.

Source: the rules of tpu-mlir's public shape inference. Pads are all begins, then all ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

Shape = tuple[int, ...]
Known = Shape | None
"""A shape; None if unknown."""


@dataclass(frozen=True)
class Call:
    """The arguments of an operator: attributes with defaults, shapes of operands, and which of these are weights."""

    attrs: Mapping[str, Any]
    shapes: tuple[Shape, ...]
    weights: tuple[bool, ...]
    absent: tuple[bool, ...]

    @property
    def first(self) -> Shape:
        """The shape of the first operand."""
        return self.shapes[0]


def need(fits: bool, what: str) -> None:  # noqa: FBT001
    """Raise ValueError(*what*) unless *fits*."""
    if not fits:
        raise ValueError(what)


def axis_of(axis: int, rank: int) -> int:
    """Return *axis* counted from the front; ValueError if a tensor of *rank* axes does not have it."""
    need(-rank <= axis < rank, f"axis {axis}: must lie in [{-rank}, {rank - 1}]")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """Return *axes* counted from the front; ValueError for a duplicate axis."""
    found = [axis_of(axis, rank) for axis in axes]
    need(len(set(found)) == len(found), f"axes {list(axes)}: each must be named once")
    return found


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape to which all of *shapes* broadcast; ValueError if two sizes differ and none is 1."""
    sizes = []
    # from the last axis on, as numpy broadcasts; missing leading axes are 1
    for column in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        others = {size for size in column if size != 1}
        need(len(others) <= 1, f"shapes {[list(shape) for shape in shapes]} do not broadcast")
        sizes.append(others.pop() if others else 1)
    return tuple(reversed(sizes))
