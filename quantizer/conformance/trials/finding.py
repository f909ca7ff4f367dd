"""One number that the parameters check judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One number that was judged: `ratio` above 1 is a fault."""

    tensor: str
    ratio: float
    expected: str
    got: str
    rule: str
    index: tuple[int, ...] = ()
