"""Covering arrays: few rows that contain every pair of factor values."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence

from quantizer.conformance.generation.hashing import key

Row = Mapping[str, str]


@functools.lru_cache(maxsize=256)
def _pairwise(factors: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[tuple[str, ...], ...]:
    sizes = [len(values) for _, values in factors]
    count = len(factors)
    open_pairs = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(count), 2)
        for a in range(sizes[i])
        for b in range(sizes[j])
    }
    # sorted: the rows must not depend on the order of a set
    queue = sorted(open_pairs)
    rows: list[tuple[str, ...]] = []
    cursor = 0
    while open_pairs:
        # each row begins with the first pair that no row holds yet
        while queue[cursor] not in open_pairs:
            cursor += 1
        i, a, j, b = queue[cursor]
        row: dict[int, int] = {i: a, j: b}
        # factors with many values first: they are the hardest to combine
        for factor in sorted(set(range(count)) - row.keys(), key=lambda f: (-sizes[f], f)):
            # among values with equally many new pairs each factor takes a turn of its own: with one turn for all
            # factors, one of two values would follow the target
            turn = key(len(rows), factors[factor][0])
            gains = [_gain(open_pairs, row, factor, value) for value in range(sizes[factor])]
            row[factor] = max(range(sizes[factor]), key=lambda v: (gains[v], -((v + turn) % sizes[factor])))
        for left, right in itertools.combinations(sorted(row), 2):
            open_pairs.discard((left, row[left], right, row[right]))
        rows.append(tuple(factors[f][1][row[f]] for f in range(count)))
    return tuple(rows)


def _gain(open_pairs: set[tuple[int, int, int, int]], row: Mapping[int, int], factor: int, value: int) -> int:
    return sum(
        ((factor, value, other, v) if factor < other else (other, v, factor, value)) in open_pairs
        for other, v in row.items()
    )


def covering_rows(factors: Mapping[str, Sequence[str]]) -> list[Row]:
    """Return rows that hold every pair of values of two different factors; greedy, the same rows every time."""
    usable = tuple((name, tuple(values)) for name, values in sorted(factors.items()) if values)
    if len(usable) == 1:
        return [{usable[0][0]: value} for value in usable[0][1]]
    return [dict(zip((name for name, _ in usable), row, strict=True)) for row in _pairwise(usable)]
