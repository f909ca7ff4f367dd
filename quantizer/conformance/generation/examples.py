"""The cases that a spec's `examples` name: always run, exactly as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.errors import SpecError
from quantizer.core.spec import Example

T = TypeVar("T")


class _Simplest:
    """Chooses the first option and the number nearest to zero, except where another value is requested by name."""

    def __init__(self, asked: Mapping[str, str]) -> None:
        self._asked = asked

    def integer(self, name: str, low: int, high: int) -> int:  # noqa: ARG002 - the protocol names every choice
        """Return the number in [low, high] that is nearest to zero."""
        return min(max(0, low), high)

    def option(self, name: str, options: Sequence[T]) -> T:  # noqa: ARG002
        """Return the first option."""
        return options[0]

    def bin(self, factor: str) -> str | None:
        """Return the requested value, or None."""
        return self._asked.get(factor)


def example_case(target: Target, example: Example) -> Case:
    """Return the case of *example*; SpecError if it leaves a dimension open that has no default."""
    spec = target.spec
    bound = {}
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        value = example.values.get(name, domain.default)
        if value is None:
            raise SpecError(f"{spec.op}: example {example.id}: value of {name!r} is missing, and it has no default.")
        bound[name] = tuple(value) if isinstance(value, list) else value
    present = [name for name in spec.inputs if name not in example.omit]
    ranges = {name: (low, high) for name, (low, high) in example.ranges.items()}
    return complete(target, bound, present, example.data, 1, _Simplest({"activation": example.activation}), ranges)
