"""Enclosures of functions with poles or an edge of their domain, by interval evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quantizer.conformance.bounds.interval import (
    FUNCTION_ULPS,
    ArrayFunction,
    BoolArray,
    FloatArray,
    Interval,
    outward,
    ulps_of,
)
from quantizer.conformance.bounds.monotone import critical_points_between


@np.errstate(all="ignore")
def reciprocal(x: Interval) -> Interval:
    """Return 1/x; unbounded where x may be zero."""
    return _unbounded(_hull(lambda end: 1.0 / end, x), _has_zero(x))


@np.errstate(all="ignore")
def rsqrt(x: Interval) -> Interval:
    """Return 1/sqrt(x); at zero unbounded above, unbounded where x may be negative (no real value is right there)."""
    # the magnitude only keeps NaN out: where x may be negative, the result is unbounded
    return _unbounded(_hull(lambda end: 1.0 / np.sqrt(np.abs(end)), x), x.lo < 0)


@np.errstate(all="ignore")
def sqrt(x: Interval) -> Interval:
    """Return the square root; unbounded where x may be negative: cut x to the operator's domain first."""
    return _unbounded(_hull(lambda end: np.sqrt(np.abs(end)), x), x.lo < 0)


@np.errstate(all="ignore")
def log(x: Interval) -> Interval:
    """Return the natural logarithm; at zero unbounded below, unbounded where x may be negative."""
    return _unbounded(_hull(lambda end: np.log(np.abs(end)), x), x.lo < 0)


@np.errstate(all="ignore")
def divide(a: Interval, b: Interval) -> Interval:
    """Return the hull of a/b at the four corners; it is unbounded where b may be zero."""
    return _unbounded(_corners([p / q for p in (a.lo, a.hi) for q in (b.lo, b.hi)], 1), _has_zero(b))


@np.errstate(all="ignore")
def power(base: Interval, exponent: Interval) -> Interval:
    """Return base**exponent.

    A positive base: the four corners (the power rises or falls along each side). A base that may be zero or negative: a
    single whole exponent, or for base >= 0 positive exponents; everything else is unbounded.
    """
    bound = _corners([np.power(p, n) for p in (base.lo, base.hi) for n in (exponent.lo, exponent.hi)])
    n, zero = exponent.lo, _has_zero(base)
    whole = (exponent.hi == n) & (np.floor(n) == n)
    # an even power turns at 0
    turns = whole & (n > 0) & (np.fmod(n, 2) == 0) & zero
    bound = Interval(np.where(turns, 0.0, bound.lo), bound.hi)
    defined = (base.lo > 0) | ((base.lo == 0) & (exponent.lo > 0)) | (whole & ((n >= 0) | ~zero))
    return _unbounded(bound, ~defined)


@np.errstate(all="ignore")
def between_poles(f: ArrayFunction, x: Interval, poles: Sequence[FloatArray]) -> Interval:
    """Return the hull of f at both ends, unbounded where a pole lies inside; f is monotone between its poles.

    *poles*: for every element, one pole of each kind inside x; NaN if there is none (`critical_points_between`).
    """
    inside = np.zeros(x.shape, dtype=bool)
    for pole in poles:
        inside |= ~np.isnan(pole)
    return _unbounded(_hull(f, x), inside)


def tan(x: Interval) -> Interval:
    """Return the tangent; unbounded where x may be at a pole pi/2 + k*pi."""
    return between_poles(np.tan, x, [critical_points_between(x.lo, x.hi, math.pi / 2, math.pi)])


def _has_zero(x: Interval) -> BoolArray:
    return np.asarray((x.lo <= 0) & (x.hi >= 0))


def _hull(f: ArrayFunction, x: Interval) -> Interval:
    """Return the hull of f at both ends, widened by the errors of float64 functions."""
    return _corners([f(x.lo), f(x.hi)])


def _corners(values: list[FloatArray], ulps: float = FUNCTION_ULPS) -> Interval:
    lows = [value - ulps_of(value, ulps) for value in values]
    highs = [value + ulps_of(value, ulps) for value in values]
    return outward(np.minimum.reduce(lows), np.maximum.reduce(highs))


def _unbounded(bound: Interval, where: BoolArray) -> Interval:
    """Return all real numbers at the elements *where*, *bound* elsewhere."""
    return Interval(np.where(where, -np.inf, bound.lo), np.where(where, np.inf, bound.hi))
