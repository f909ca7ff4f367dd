"""What random ONNX nodes are drawn from: a source of shapes, values and formats, and a table of what draws each operator."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

FLOATS = (np.float32, np.float32, np.float32, np.float16, np.float64)
INTEGERS = (np.int32, np.int64, np.int8, np.uint8)
WIDE = (np.float32, np.float32, np.int32, np.int64, np.float64)
SPECIALS = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e38, 1e-40, 0.5, -0.5, 1.5, 2.5, 88.9, -104.0, 3e-5)


@dataclass
class Draw:
    """A seeded source of shapes, values and attributes of a node."""

    seed: int
    r: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Start the source."""
        self.r = random.Random(self.seed)

    def one(self, *choices: object) -> object:
        """Return one of *choices*."""
        return self.r.choice(choices)

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from *low* to *high*."""
        return self.r.randint(low, high)

    def chance(self, share: float) -> bool:
        """Return True in this share of all draws."""
        return self.r.random() < share

    def shape(self, low: int = 0, high: int = 4, largest: int = 5, smallest: int = 1) -> tuple[int, ...]:
        """Return a shape of *low* to *high* axes."""
        return tuple(self.r.randint(smallest, largest) for _ in range(self.r.randint(low, high)))

    def values(self, shape: tuple[int, ...], dtype: type = np.float32, *, special: bool = False) -> np.ndarray:
        """Return numbers of a format; with *special* some are infinite, no numbers, huge or ties."""
        count = math.prod(shape)
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return np.array([self.chance(0.5) for _ in range(count)], bool).reshape(shape)
        if kind.kind in "iu":
            info = np.iinfo(kind)
            low, high = (max(-9, int(info.min)), 9) if self.chance(0.8) else (int(info.min), int(info.max))
            return np.array([self.r.randint(low, high) for _ in range(count)], kind).reshape(shape)
        reach = self.r.choice((1.0, 1.0, 3.0, 30.0))
        drawn = [self.r.gauss(0.0, reach) for _ in range(count)]
        if self.chance(0.1):
            drawn = [float(round(v)) for v in drawn]
        if special and self.chance(0.3):
            drawn = [self.r.choice(SPECIALS) if self.chance(0.4) else v for v in drawn]
        with np.errstate(over="ignore", under="ignore"):
            return np.array(drawn, np.float64).astype(kind).reshape(shape)

    def beside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape that broadcasts with *shape* in both directions."""
        cut = shape[self.r.randint(0, len(shape)) :] if self.chance(0.4) else shape
        return tuple(1 if self.chance(0.25) else size for size in cut)


@dataclass(frozen=True)
class Made:
    """One node: operator, opset, operands (None is absent), attributes, number of results."""

    op: str
    opset: int
    operands: tuple[np.ndarray | None, ...]
    attrs: dict[str, object] = field(default_factory=dict)
    results: int = 1
    held: frozenset[int] = frozenset()
    """Places of the operands that are constants of the file; the others are fed."""


TABLE: dict[str, Callable[[Draw, str], Made]] = {}
Maker = Callable[[Draw, str], Made]


def draws(*ops: str) -> Callable[[Maker], Maker]:
    """Register the function that draws nodes of these operators."""

    def kept(maker: Maker) -> Maker:
        for op in ops:
            assert op not in TABLE, op
            TABLE[op] = maker
        return maker

    return kept


def whole(*values: int) -> np.ndarray:
    """Return a vector of int64."""
    return np.array(values, np.int64)
