"""Delta debugging (Zeller, Hildebrandt 2002): removes elements while a failure remains, in a limited number of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from quantizer.core.errors import QuantizerError

T = TypeVar("T")
U = TypeVar("U")


class Budget(Generic[T]):
    """A predicate with a limited number of runs, so that shrinking ends."""

    def __init__(self, fails: Callable[[T], bool], runs: int) -> None:
        self._fails = fails
        self.left = runs

    def __call__(self, candidate: T) -> bool:
        """Return whether *candidate* fails; False if it cannot be run, or if no runs are left."""
        if self.left <= 0:
            return False
        self.left -= 1
        try:
            return self._fails(candidate)
        except QuantizerError:
            return False


def fewest(elements: list[U], fails: Budget[T], keeping: Callable[[list[U]], T]) -> list[U]:
    """Return as few of *elements* as ddmin finds; the candidate that *keeping* makes of them still fails."""
    if fails(keeping([])):
        return []
    # halves first: most elements do not matter, so large parts go at once
    kept, size = elements, max(1, len(elements) // 2)
    while len(kept) > 1 and fails.left > 0:
        fewer = _without_a_part(kept, size, fails, keeping)
        if fewer is not None:
            kept = fewer
        elif size == 1:
            break
        else:
            size //= 2
    return kept


def _without_a_part(kept: list[U], size: int, fails: Budget[T], keeping: Callable[[list[U]], T]) -> list[U] | None:
    """Return *kept* without the first part of *size* elements that the failure does not need; None without one."""
    for start in range(0, len(kept), size):
        if fails.left <= 0:
            return None
        fewer = kept[:start] + kept[start + size :]
        if fewer and fails(keeping(fewer)):
            return fewer
    return None
