"""Intervals with float64 ends, rounded outward: rounding errors here never make an enclosure unsound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quantizer.core.rounding_modes import RoundingMode

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
ArrayFunction = Callable[[FloatArray], FloatArray]

UNIT = 2.0**-53
"""Largest relative error of one float64 operation."""
TINY = 2.0**-1074
"""Smallest positive float64: the absolute error of one operation that underflows."""
LARGEST = float(np.finfo(np.float64).max)
ON_THE_WAY = 2.0**-960
"""Magnitude below which ulps are not trusted: f may overflow or underflow on its way to a value so small."""
NARROW = 0.249
"""An interval narrower than this share of a range is narrower than a quarter of it, however the widths are rounded."""
FUNCTION_ULPS = 8
"""Assumed error of a float64 elementary function and one more operation, in units in the last place."""


@dataclass(frozen=True)
class Interval:
    """All real numbers between `lo` and `hi`, element by element; an infinite end is unbounded."""

    lo: FloatArray
    hi: FloatArray

    def __post_init__(self) -> None:
        if self.lo.dtype != np.float64 or self.hi.dtype != np.float64:
            raise ValueError(f"interval: ends must be float64, got {self.lo.dtype} and {self.hi.dtype}.")
        if not (self.lo <= self.hi).all():
            raise ValueError("interval: lo must be <= hi in every element, and neither may be NaN.")

    @staticmethod
    def around(value: npt.ArrayLike, radius: npt.ArrayLike) -> Interval:
        """Return [value - radius, value + radius]; exact where both ends are float64 numbers."""
        x, d = np.asarray(value, np.float64), np.asarray(radius, np.float64)
        if not (d >= 0).all():
            raise ValueError("radius: must be >= 0 in every element, and not NaN.")
        return Interval(add_down(x, -d), add_up(x, d))

    @staticmethod
    def exactly(value: npt.ArrayLike) -> Interval:
        """Return the interval [value, value]."""
        x = np.asarray(value, np.float64)
        return Interval(x, x)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of both ends: the shape of the tensor."""
        return self.lo.shape

    @property
    @np.errstate(all="ignore")
    def width(self) -> FloatArray:
        """`hi - lo`, rounded up; infinite if an end is."""
        return add_up(self.hi, -self.lo)

    def contains(self, values: npt.ArrayLike) -> BoolArray:
        """Tell for every element whether *values* lies inside; NaN does not."""
        v = np.asarray(values)
        return np.asarray((self.lo <= v) & (v <= self.hi))

    def moved(self, f: ArrayFunction) -> Interval:
        """Return the interval of f(lo), f(hi), for an f that moves or selects elements or takes an extremum."""
        return Interval(f(self.lo), f(self.hi))

    def widened(self, amount: npt.ArrayLike) -> Interval:
        """Return the interval widened by *amount* >= 0 at each end (for a verdict, gap/2 + e)."""
        by = np.asarray(amount, np.float64)
        return Interval(add_down(self.lo, -by), add_up(self.hi, by))

    def saturated(self, smallest: npt.ArrayLike, largest: npt.ArrayLike) -> Interval:
        """Return both ends clamped to [smallest, largest], as an output's codes clamp them."""
        low, high = np.asarray(smallest, np.float64), np.asarray(largest, np.float64)
        return self.moved(lambda end: np.minimum(np.maximum(end, low), high))

    def intersect(self, other: Interval) -> Interval:
        """Return the intersection of two intervals; two sound enclosures of one value always intersect."""
        return Interval(np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi))

    def hull(self, other: Interval) -> Interval:
        """Return the smallest interval that holds both."""
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __add__(self, other: Interval) -> Interval:
        return Interval(add_down(self.lo, other.lo), add_up(self.hi, other.hi))

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    @np.errstate(all="ignore")
    def __mul__(self, other: Interval) -> Interval:
        """Return the products of all pairs: the four corners; zero times unbounded is zero."""
        # a product of intervals takes its extremes at the corners; both ends are rounded outward
        corners = [_product(a, b) for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        lows, highs = zip(*corners, strict=True)
        return Interval(np.minimum.reduce(lows), np.maximum.reduce(highs))


def gamma(operations: int) -> float:
    """Return the relative error bound n*u/(1 - n*u) of *operations* float64 roundings in a row (Higham 2002, 3.1)."""
    return operations * UNIT / (1 - operations * UNIT)


@np.errstate(all="ignore")
def add_down(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the largest float64 number <= a + b: the exact sum if float64 represents it."""
    total = np.asarray(a + b)
    part = total - a
    error = (a - (total - part)) + (b - part)  # Knuth's error-free sum: a + b = total + error
    bits = total.view(np.int64)  # the next lower nonzero number has the bits less 1; plus 1 if negative
    bits -= ((bits >> 63) | 1) * (error < 0)  # an inexact sum is not 0
    np.minimum(total, LARGEST, out=total)
    np.copyto(total, -np.inf, where=np.isnan(total))
    return total


def add_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the smallest float64 number >= a + b: the exact sum if float64 represents it."""
    return -add_down(-a, -b)


@np.errstate(all="ignore")
def outward(lo: FloatArray, hi: FloatArray, slack: npt.ArrayLike = 0.0) -> Interval:
    """Return [lo - slack, hi + slack] for ends that rounding may have moved by *slack*.

    An end that is NaN (outside a domain) becomes infinite. An end that overflowed becomes the largest float64
    number, the neighbour of infinity.
    """
    by = np.asarray(slack, np.float64)
    low, high = np.nextafter(lo - by, -np.inf), np.nextafter(hi + by, np.inf)
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    # a falling function gives the ends in reverse order
    return Interval(np.minimum(low, high), np.maximum(low, high))


@np.errstate(all="ignore")
def ulps_of(values: FloatArray, ulps: float, magnitude: npt.ArrayLike = 0.0) -> FloatArray:
    """Return *ulps* units in the last place of max(|values|, magnitude, 2^-960); 0 where that is not finite."""
    spacing = np.spacing(np.maximum(np.maximum(np.abs(values), magnitude), ON_THE_WAY))
    return np.where(np.isfinite(spacing), ulps * spacing, 0.0)


def input_radius(
    x: FloatArray,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    qmin: int,
    qmax: int,
    *,
    float32: bool,
    rounding: RoundingMode = "half_even",
) -> FloatArray:
    """Return the largest |x^ - x|, x^ the value of the code of x.

    Half a step (a whole one where *rounding* is not to nearest), plus 2^-23 * (|x| + s*|z|) where the quantizer
    computes in float32 (x and s being float32 numbers: one division or product, one addition), plus the distance
    of x to [s(qmin - z), s(qmax - z)]. Per-axis scales and zero points come shaped to broadcast against x.
    """
    s, z = np.asarray(scale, np.float64), np.asarray(zero_point, np.float64)
    step = 0.5 if rounding.startswith("half") else 1.0
    # beyond the codes x saturates, and its distance from the end counts in full
    radius = s * step + np.maximum(np.maximum(s * (qmin - z) - x, x - s * (qmax - z)), 0.0)
    magnitude = np.abs(x) + s * np.maximum(np.abs(z), max(abs(qmin), abs(qmax)))
    if float32:
        radius = radius + 2.0**-23 * (np.abs(x) + s * np.abs(z))
    # our own float64 operations: fewer than eight roundings of numbers up to magnitude + radius
    return np.asarray(radius + 8 * UNIT * (magnitude + radius), np.float64)


def vacuous(interval: Interval, output_lo: npt.ArrayLike, output_hi: npt.ArrayLike) -> BoolArray:
    """Return a mask of vacuous elements, whose interval (clamped) covers more than a quarter of the output's range."""
    low, high = np.asarray(output_lo, np.float64), np.asarray(output_hi, np.float64)
    if (interval.hi - interval.lo < NARROW * (high - low)).all():
        return np.zeros(interval.shape, np.bool_)
    # negated, so that a width of NaN counts as vacuous
    return np.asarray(~(interval.saturated(low, high).width <= (high - low) / 4))


def _product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds of a * b, exact where a factor is zero."""
    p = a * b
    zero = (a == 0) | (b == 0)  # 0 * inf is NaN in IEEE arithmetic; zero times any real number is 0
    return np.where(zero, 0.0, np.nextafter(p, -np.inf)), np.where(zero, 0.0, np.nextafter(p, np.inf))
