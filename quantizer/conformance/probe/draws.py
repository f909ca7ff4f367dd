"""Random draws that are the same on every machine: hashes of a seed and a count."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantizer.conformance.generation.hashing import uniform


class Draws:
    """A sequence of draws. Sizes are numbers of elements."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def shares(self, size: int) -> Any:
        """Return *size* numbers in [0, 1)."""
        # each call draws under its own number, so that a sequence of calls is a sequence of draws
        self._count += 1
        return uniform(self._seed, str(self._count), (size,))

    def share(self) -> float:
        """Return one number in [0, 1)."""
        return float(self.shares(1)[0])

    def integers(self, low: int, high: int, size: int) -> Any:
        """Return *size* integers in [low, high), int64."""
        return low + (self.shares(size) * (high - low)).astype(np.int64)

    def integer(self, low: int, high: int) -> int:
        """Return one integer in [low, high)."""
        return int(self.integers(low, high, 1)[0])

    def order(self, count: int) -> Any:
        """Return 0 to count - 1 in random order."""
        return np.argsort(self.shares(count), kind="stable")

    def some(self, count: int, most: int) -> Any:
        """Return *most* of the numbers 0 to count - 1, or all if there are fewer, in rising order."""
        return np.sort(self.order(count)[:most])
