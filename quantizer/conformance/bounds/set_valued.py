"""Enclosures of discontinuous functions, and comparisons with the results true, false and undecided."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from quantizer.conformance.bounds.interval import FloatArray, Interval

Comparison = Literal["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
Truth = npt.NDArray[np.int8]
"""0 (false), 1 (true) or UNDECIDED."""
UNDECIDED = -1
EXACT_QUOTIENT = 2.0**50
"""Up to here numpy's floor_divide, built on the exact fmod, returns the floor of the exact quotient."""


@np.errstate(all="ignore")
def modulo(x: Interval, y: Interval, *, truncated: bool = False) -> Interval:
    """Return the set of x - k*y, k = floor(x/y), or trunc(x/y) where *truncated* (the sign of x, as C's fmod).

    If k differs over the box, the result is the whole range of remainders. A divisor that may be zero gives an
    infinite enclosure.
    """
    corners = [_quotient(a, b, truncated=truncated) for a in (x.lo, x.hi) for b in (y.lo, y.hi)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    largest = np.maximum(np.abs(y.lo), np.abs(y.hi))
    sign = x if truncated else y
    every = Interval(np.where(sign.lo < 0, -largest, 0.0), np.where(sign.hi > 0, largest, 0.0))
    same = (low == high) & (np.abs(low) <= EXACT_QUOTIENT)
    # where the whole box has one quotient, the remainder is linear in x and y
    near = x - Interval.exactly(np.where(same, low, 0.0)) * y
    lo = np.where(same, np.maximum(near.lo, every.lo), every.lo)
    hi = np.where(same, np.minimum(near.hi, every.hi), every.hi)
    # a divisor that may be 0 may give any number
    pole = (y.lo <= 0) & (y.hi >= 0)
    return Interval(np.where(pole, -np.inf, lo), np.where(pole, np.inf, hi))


def compare(op: Comparison, a: Interval, b: Interval) -> Truth:
    """Return whether `a op b` holds: 1, 0, or UNDECIDED where the intervals meet."""
    if op in ("greater", "greater_equal"):
        return compare("less" if op == "greater" else "less_equal", b, a)
    if op == "not_equal":
        return negate(compare("equal", a, b))
    if op == "less":
        return _truth(a.hi < b.lo, a.lo >= b.hi)
    if op == "less_equal":
        return _truth(a.hi <= b.lo, a.lo > b.hi)
    return _truth((a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo), (a.hi < b.lo) | (b.hi < a.lo))


def negate(truth: Truth) -> Truth:
    """Return the opposite; undecided elements stay undecided."""
    return np.where(truth == UNDECIDED, UNDECIDED, 1 - truth).astype(np.int8)


def truth_interval(truth: Truth) -> Interval:
    """Return [0, 0], [1, 1], or [0, 1] where undecided: the mask that an engine shows."""
    return Interval((truth == 1).astype(np.float64), (truth != 0).astype(np.float64))


def where(condition: Truth, a: Interval, b: Interval) -> Interval:
    """Return a where the condition holds, b where it does not, the hull of both where it is undecided."""
    both = a.hull(b)
    return Interval(_select(condition, a.lo, b.lo, both.lo), _select(condition, a.hi, b.hi, both.hi))


def one_hot(index: Interval, depth: int, *, axis: int = -1, on: float = 1.0, off: float = 0.0) -> Interval:
    """Return *on* at the index along a new axis and *off* elsewhere; [off, on] wherever the index may be.

    Indices are integers. An index outside [0, depth) gives only the off value.
    """
    shape = [1] * (len(index.shape) + 1)
    shape[axis] = depth
    place = np.arange(depth, dtype=np.float64).reshape(shape)
    low, high = np.expand_dims(np.ceil(index.lo), axis), np.expand_dims(np.floor(index.hi), axis)
    possible, certain = (place >= low) & (place <= high), (place == low) & (place == high)
    truth = _truth(certain, ~possible)
    return where(truth, Interval.exactly(np.full(truth.shape, on)), Interval.exactly(np.full(truth.shape, off)))


def _truth(yes: npt.ArrayLike, no: npt.ArrayLike) -> Truth:
    return np.where(yes, 1, np.where(no, 0, UNDECIDED)).astype(np.int8)


def _select(condition: Truth, yes: FloatArray, no: FloatArray, both: FloatArray) -> FloatArray:
    return np.where(condition == 1, yes, np.where(condition == 0, no, both))


def _quotient(a: FloatArray, b: FloatArray, *, truncated: bool) -> FloatArray:
    """Return floor(a/b), or trunc(a/b), exact up to 2^50."""
    if truncated:
        return np.sign(a) * np.sign(b) * np.floor_divide(np.abs(a), np.abs(b))
    return np.floor_divide(a, b)
