"""Sources of the choices that make a case: a row of the covering array and a hash, or Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from quantizer.conformance.generation.hashing import key

T = TypeVar("T")


class ChoiceSource(Protocol):
    """Makes named choices; smaller numbers and earlier options are simpler."""

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer in [low, high]."""

    def option(self, name: str, options: Sequence[T]) -> T:
        """Return one of *options*."""

    def bin(self, factor: str) -> str | None:
        """Return the bin that coverage requests, or None to leave it open."""


class HashChoices:
    """Choices by hash of a seed and the name, with the bins of one row of a covering array."""

    def __init__(self, seed: int, row: Mapping[str, str]) -> None:
        self._seed = seed
        self._row = row

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        # a hash has 64 bits, so the bias of the remainder is at most 2**-32 for ranges of 32 bits
        return low + key(self._seed, name) % (high - low + 1)

    def option(self, name: str, options: Sequence[T]) -> T:
        """Return one of *options*."""
        return options[key(self._seed, name) % len(options)]

    def bin(self, factor: str) -> str | None:
        """Return the row's bin for *factor*."""
        return self._row.get(factor)


class HypothesisChoices:
    """Choices by Hypothesis; every choice is one call of `integers(low, high)`."""

    def __init__(self, draw_integer: Callable[[int, int], int]) -> None:
        self._draw = draw_integer

    def integer(self, name: str, low: int, high: int) -> int:  # noqa: ARG002 - the protocol names every choice
        """Return an integer in [low, high]."""
        # a choice of one is not drawn, so that Hypothesis has fewer to shrink
        return low if low == high else self._draw(low, high)

    def option(self, name: str, options: Sequence[T]) -> T:  # noqa: ARG002
        """Return one of *options*."""
        return options[0] if len(options) == 1 else options[self._draw(0, len(options) - 1)]

    def bin(self, factor: str) -> str | None:  # noqa: ARG002
        """Return None: Hypothesis is not steered by rows."""
        return None
