"""Lists of trailing axes of Compass layers: our operators name the first one."""

from __future__ import annotations

from quantizer.core.errors import GraphError
from quantizer.ir.formats.compass_text import format_loosely
from quantizer.ir.graph import AttrValue


def first_of_trailing(where: str, key: str, listed: AttrValue, rank: int) -> int:
    """Return the axis that *listed* starts with; GraphError unless it names that axis and all after it, in order."""
    axes = listed if isinstance(listed, tuple) else ()
    numbers = [axis for axis in axes if isinstance(axis, int) and not isinstance(axis, bool)]
    if not numbers or len(numbers) < len(axes) or tuple(numbers) != trailing(numbers[0], rank):
        wanted = list(range(max(0, rank - max(len(axes), 1)), rank))
        raise GraphError(f"{where}: {key}: got {format_loosely(listed)}: must list trailing axes, such as {wanted}.")
    return numbers[0]


def trailing(axis: int, rank: int) -> tuple[int, ...]:
    """Return *axis* and all after it in a tensor of *rank* axes, negative where it is."""
    return tuple(range(axis, 0 if axis < 0 else rank))
