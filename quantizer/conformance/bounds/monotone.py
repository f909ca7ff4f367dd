"""Enclosures of functions of one element that rise, fall, or turn at known points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quantizer.conformance.bounds.interval import (
    FUNCTION_ULPS,
    UNIT,
    ArrayFunction,
    FloatArray,
    Interval,
    outward,
    ulps_of,
)


@np.errstate(all="ignore")
def monotone(
    f: ArrayFunction,
    x: FloatArray,
    dx: FloatArray,
    *,
    ulps: float = FUNCTION_ULPS,
    magnitude: npt.ArrayLike = 0.0,
) -> Interval:
    """Return the hull of f(x - dx) and f(x + dx), for f rising or falling throughout.

    *ulps*: declared error of f in float64, in units in the last place of max(|f|, magnitude); give the magnitude of
    the operands where f subtracts (`magnitude=1` for 1 - exp(x)). An end outside the domain of f is unbounded.
    """
    return piecewise_monotone(f, x, dx, (), ulps=ulps, magnitude=magnitude)


@np.errstate(all="ignore")
def piecewise_monotone(
    f: ArrayFunction,
    x: FloatArray,
    dx: FloatArray,
    critical_points: Sequence[npt.ArrayLike],
    *,
    ulps: float = FUNCTION_ULPS,
    magnitude: npt.ArrayLike = 0.0,
) -> Interval:
    """Return the hull of f at both ends and at the critical points inside; exact except for the ulps of f.

    Each array of critical points broadcasts against x; NaN means that there is no such point. Points are where f turns,
    to at least twelve digits: f is flat there, so that the digits left out do not count (a kink must be exact).
    """
    box = Interval.around(x, dx)
    values = [f(box.lo), f(box.hi)]
    for point in critical_points:
        c = np.broadcast_to(np.asarray(point, np.float64), box.shape)
        # a point just outside counts too: a wider hull is sound, a missed point is not
        near = 8 * UNIT * np.abs(c)
        inside = (c >= box.lo - near) & (c <= box.hi + near)
        # elsewhere f is asked at an end, because the point may lie outside its domain
        values.append(np.where(inside, f(np.where(inside, c, box.lo)), values[0]))
    lows = [value - ulps_of(value, ulps, magnitude) for value in values]
    highs = [value + ulps_of(value, ulps, magnitude) for value in values]
    return outward(np.minimum.reduce(lows), np.maximum.reduce(highs))


@np.errstate(all="ignore")
def critical_points_between(lo: FloatArray, hi: FloatArray, first: float, period: float) -> FloatArray:
    """Return, for every element, the first of `first + k*period` in [lo, hi]; NaN if there is none.

    One point is enough, f being periodic. sin: (pi/2, 2*pi) and (-pi/2, 2*pi); poles of tan: (pi/2, pi).
    """
    near = 8 * UNIT * (np.abs(lo) + abs(first) + period)
    point = first + period * np.ceil((lo - near - first) / period)
    return np.where(point <= hi + near, point, np.nan)
