"""What a question aims at: scales that put sums next to ties, and sums at the ends of accumulators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantizer.conformance.probe.draws import Draws
from quantizer.conformance.probe.question import Array, Grids, Question
from quantizer.numerics.qparams import QParams

POWERS, RATIONAL, ANY, SOLVED = "powers of two", "rational scales", "any scales", "solved scales"
AIMS = (POWERS, RATIONAL, SOLVED, RATIONAL, SOLVED, ANY)
"""Scales of a draft. All are powers of two; or odd multiples of these, the output's solved so that a value is exactly a
tie under a ratio that no multiplier holds; or the output's or the weights' scale is solved so that real values lie as
near to ties as float32 allows; or all are any float32 numbers."""
ENDS = (0.0, 1.0, 0.5, 0.4961)
"""Places of zero points that are tried more often than others: both ends, and two in the middle, one of them odd."""
FLOAT32 = 1 << 24
"""All whole numbers below this are float32 numbers."""
OFTEN = 0.6
"""The share of zero points that get one of these places."""
INVERSES: Mapping[str, Callable[[float], float]] = {
    "sigmoid": lambda y: math.log(y / (1.0 - y)),
    "tanh": math.atanh,
    "softmax": lambda y: math.log(y / (1.0 - y)),
}
"""Operator with a fixed output grid -> the operand at which it has a given value; for a softmax, the difference of
two operands."""


@dataclass(frozen=True)
class Draft:
    """The items of a possible question. Each item can be left out."""

    count: int
    build: Callable[[Array], Question]
    """Places of items -> the question of these items."""

    def whole(self) -> Question:
        """Return the question that has every item."""
        return self.build(np.arange(self.count))


@dataclass(frozen=True)
class Wanted:
    """The aim of a draft."""

    aim: str
    reach: int
    """The number of bits of the largest sum, its sign not counted."""
    items: int
    past: int | None = None
    """Bits of the accumulator that the sums should exceed; None: any sums."""
    far: bool = False
    """Whether results may lie as far beyond the codes as sums allow."""


def scale_of(draws: Draws, aim: str, exponent: int, size: int | None = None) -> Array:
    """Return scales near 2**exponent in float32: a power of two, an odd multiple of one, or any number."""
    if aim == POWERS:
        found = np.full(size or 1, 2.0**exponent)
    elif aim == RATIONAL:
        most = draws.integer(1, 7)
        odd = 2.0 * draws.integers(0, 1 << (most - 1), size or 1) + 1.0
        found = odd * 2.0 ** (exponent - most + 1)
    else:
        found = np.ldexp(1.0 + draws.shares(size or 1), exponent)
    return np.asarray(found.astype(np.float32).astype(np.float64))


def place_of(draws: Draws) -> float:
    """Return the place of a zero point, from 0 (smallest code) to 1 (largest)."""
    return ENDS[draws.integer(0, len(ENDS))] if draws.share() < OFTEN else draws.share()


def solved_scale(draws: Draws, wanted: Wanted, scale: float, values: Array, y: QParams, unit: float = 0.0) -> float:
    """Return the output's *scale*, or a scale that puts one of *values* on a tie (RATIONAL) or next to one (SOLVED).

    *unit*: the real value of one unit of a sum. With *unit*, every second tie is moved: there, a first rounding that
    drops 31 bits of the product is itself a tie, and the last rounding is next to one.
    """
    reachable = values[np.isfinite(values) & (values != 0.0)]
    if wanted.aim not in (RATIONAL, SOLVED) or not reachable.size:
        return scale
    value = float(reachable[draws.integer(0, reachable.size)])
    ends = (y.qmin - int(y.zero_point), y.qmax - int(y.zero_point))
    if wanted.aim == RATIONAL:
        return _exact_tie(draws, value, ends[1] if value > 0 else -ends[0], scale)
    tie = tie_of(draws, ends, positive=value > 0)
    tie = twice_tied(draws, tie, unit * tie / value) if unit and tie else tie
    found = value / tie if tie else scale
    return float(np.float32(found)) if 2.0**-100 < found < 2.0**100 else scale


def _exact_tie(draws: Draws, value: float, reach: int, scale: float) -> float:
    """Return a float32 output scale under which *value* is an odd number of half steps, at most *reach* steps."""
    # only odd factors matter: powers of two change the scale's exponent
    whole = abs(value.as_integer_ratio()[0])
    odd = whole // (whole & -whole)
    divisors = [number for number in range(1, 2 * reach, 2) if odd % number == 0]
    if not divisors:
        return scale
    divisor = divisors[draws.integer(0, len(divisors))]
    found = abs(value) * 2.0 / divisor
    return found if odd // divisor < FLOAT32 and 2.0**-100 < found < 2.0**100 else scale


def solved_output(draws: Draws, wanted: Wanted, grids: Grids, question: Question) -> QParams:
    """Return the output grid of *question*; under SOLVED its scale puts one real value next to a tie."""
    y = question.output
    if grids.follows or wanted.aim not in (RATIONAL, SOLVED):
        return y
    return grids.grid(y, solved_scale(draws, wanted, float(y.scale), question.exact() * float(y.scale), y), None)


def solved_input(
    draws: Draws, wanted: Wanted, grids: Grids, inputs: dict[str, QParams], y: QParams, code: int
) -> dict[str, QParams]:
    """Return the grid of x; under SOLVED *code* (centred) has a value next to a tie of a fixed output."""
    inverse = INVERSES.get(grids.target.spec.op)
    if wanted.aim != SOLVED or inverse is None or not code:
        return inputs
    tie = (draws.integer(1, y.qmax - int(y.zero_point)) + 0.5) * float(y.scale)
    found = abs(inverse(tie) / code) if 0.0 < tie < 1.0 else 0.0
    return {"x": grids.grid(inputs["x"], found, None)} if 2.0**-12 < found < 4.0 else inputs


def twice_tied(draws: Draws, tie: Any, ratio: Any) -> Any:
    """Return ties. Half of them are moved to where the first rounding of a 31-bit multiplier is itself a tie."""
    # places that the first rounding keeps: a unit of it is 2**-dropped of a code
    dropped = np.floor(-np.log2(np.maximum(ratio, 2.0**-60)))
    moved = tie - np.sign(tie) * 2.0 ** -(dropped + 1.0)
    chosen = np.where(draws.shares(np.size(tie)) < 0.5, moved, tie)
    return chosen if np.shape(tie) else float(chosen[0])


def tie_of(draws: Draws, ends: tuple[int, int], *, positive: bool) -> float:
    """Return a tie between two codes on one side of the zero point, counted from it; 0 if that side has no code."""
    low, high = (0, ends[1]) if positive else (ends[0], 0)
    return draws.integer(low, high) + 0.5 if low < high else 0.0
