"""What the parameters check judged: one number, or several that are equally right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A number that was judged: `ratio` above 1 is a fault."""

    tensor: str
    ratio: float
    expected: str
    got: str
    rule: str
    index: tuple[int, ...] = ()
    numbers: int = 1
    """How many numbers have this ratio; the texts show the first."""
