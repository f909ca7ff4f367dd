"""Exact numbers as error-free pairs: the nearest float64, and on which side of it the number lies.

A pair decides every rounding of its number, since whole numbers and ties are float64 themselves. Rationals decide where
no pair is known. Products and remainders follow Dekker, Numer. Math. 18 (1971).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from quantizer.conformance.bounds.interval import FloatArray
from quantizer.core.rounding_modes import RoundingMode

CodeArray = npt.NDArray[np.int64]
Exact = Callable[[tuple[int, ...]], Fraction]
"""Index of an element -> its number in rationals."""
SPLITTER = 2.0**27 + 1
LARGEST, SMALLEST = 2.0**500, 2.0**-400
"""Between these in magnitude products have no overflow, and their errors are float64."""
WHOLE = 2.0**51
"""Larger numbers are decided in rationals, because float64 has no bit left for one half."""


@dataclass(frozen=True)
class Pair:
    """Exact numbers, element by element, as pairs and in rationals."""

    nearest: FloatArray
    """The nearest float64; NaN where only rationals are known."""
    left: FloatArray
    """The number minus `nearest`; only its sign matters."""
    rational: Exact

    def __call__(self, index: tuple[int, ...]) -> Fraction:
        """Return the number of one element in rationals."""
        return self.rational(index)

    def at_least_zero(self, rational: Exact) -> Pair:
        """Return the larger of each number and 0; *rational*: the same in rationals."""
        kept = (self.nearest > 0) | ((self.nearest == 0) & (self.left > 0))
        held = np.where(kept | np.isnan(self.nearest), self.nearest, 0.0)
        return Pair(held, np.where(kept, self.left, 0.0), rational)

    def below(self, limit: float, rational: Exact) -> Pair:
        """Return the smaller of each number and *limit*; only *rational* holds those just under *limit* or above."""
        return Pair(np.where(self.nearest < limit - abs(limit) * 2.0**-40, self.nearest, np.nan), self.left, rational)


def of_floats(values: FloatArray) -> Pair:
    """Return numbers that are float64 themselves."""
    return Pair(values, np.zeros_like(values), lambda index: Fraction(float(values[index])))


@np.errstate(all="ignore")
def product(first: npt.ArrayLike, second: npt.ArrayLike, exponents: npt.ArrayLike, rational: Exact) -> Pair:
    """Return first * second * 2**exponents of floats or integers; *rational*: the same in rationals."""
    values, factor = np.asarray(first, np.float64), np.asarray(second, np.float64)
    nearest, left = _product(values, factor)
    scaled = np.ldexp(nearest, np.asarray(exponents, np.int64))
    known = _is_safe(values, factor, nearest, scaled) | ((values == 0) & np.isfinite(factor))
    if np.asarray(first).dtype.kind != "f":  # float64 would round an integer that it does not hold
        known = known & (np.abs(values) < WHOLE)
    return Pair(np.where(known, scaled, np.nan), np.where(known, left, 0.0), rational)


@np.errstate(all="ignore")
def quotient(first: FloatArray, second: npt.ArrayLike, rational: Exact) -> Pair:
    """Return first / second; *rational*: the same in rationals."""
    divisor = np.asarray(second, np.float64)
    nearest = first / divisor
    again, error = _product(nearest, divisor)
    # the remainder of the division, without error, says on which side of `nearest` the quotient lies
    left = np.sign((first - again) - error) * np.sign(divisor)
    known = _is_safe(first, divisor, nearest, again) | ((first == 0) & (divisor != 0))
    return Pair(np.where(known, nearest, np.nan), np.where(known, left, 0.0), rational)


@np.errstate(all="ignore")
def product_over(
    first: FloatArray, second: npt.ArrayLike, divisor: float, exponents: npt.ArrayLike, rational: Exact
) -> Pair:
    """Return first * second * 2**exponents / divisor of floats; *rational*: the same in rationals."""
    factor, by = np.asarray(second, np.float64), np.asarray(divisor)
    whole, rest = _product(first, factor)
    near = whole / by
    again, error = _product(near, by)
    # what is left of the product, without error, over the divisor; this quotient is off by 2**-52 of itself
    more = (((whole - again) - error) + rest) / by
    nearest, left = _sum(near, more)
    again, error = _product(nearest, by)
    # a product and its error name one number, so that equal ones are the same number
    same = (again == whole) & (error == rest)
    scaled = np.ldexp(nearest, np.asarray(exponents, np.int64))
    decided = same | (np.abs(left) > np.abs(more) * 2.0**-48) | (np.rint(2 * scaled) != 2 * scaled)
    known = decided & _is_safe(first, factor, whole, by, near, again, scaled)
    known |= (first == 0) & np.isfinite(factor)
    return Pair(np.where(known, scaled, np.nan), np.where(known & ~same, left, 0.0), rational)


@np.errstate(all="ignore")
def total(terms: list[tuple[FloatArray, float]], rational: Exact) -> Pair:
    """Return the sum of the products of each term and its factor; *rational*: the same in rationals."""
    whole, rest, slack = (np.zeros(terms[0][0].shape) for _ in range(3))
    known = np.ones(terms[0][0].shape, dtype=bool)
    for values, factor in terms:
        part, error = _product(values, np.asarray(factor))
        known &= _is_safe(values, np.asarray(factor), part, part) | (values == 0)
        whole, lost = _sum(whole, part)
        rest = rest + (lost + error)
        slack = slack + np.abs(lost) + np.abs(error) + np.abs(rest)
    nearest, left = _sum(whole, rest)
    # decided where what is left outweighs its own rounding, or where no whole number and no tie is near
    known &= (np.abs(left) > slack * 2.0**-48) | (slack == 0) | (np.rint(2 * nearest) != 2 * nearest)
    return Pair(np.where(known, nearest, np.nan), left, rational)


def rounded(pair: Pair, before: CodeArray, rounding: RoundingMode) -> tuple[CodeArray, CodeArray]:
    """Return the integers to which *rounding* may round each number + *before*: one, or two if it is stochastic.

    Numbers must be known as pairs, and smaller than WHOLE.
    """
    floor = np.floor(pair.nearest)
    on_whole = pair.nearest == floor
    under = on_whole & (pair.left < 0)
    below = floor.astype(np.int64) - under + before
    above = below + ~(on_whole & (pair.left == 0))
    if rounding == "stochastic":
        return below, above
    if rounding in ("up", "down", "toward_zero"):
        one = {"up": above, "down": below}.get(rounding, np.where(below >= 0, below, above))
        return one, one
    side = np.where(on_whole, np.where(under, 1.0, -1.0), np.sign(pair.nearest - (floor + 0.5)))
    side = np.where(side == 0, np.sign(pair.left), side)
    goes_up = {
        "half_even": below % 2 == 1,
        "half_up": True,
        "half_down": False,
        "half_away": below >= 0,
        "half_toward_zero": below < 0,
    }[rounding]
    one = below + np.where(side == 0, goes_up, side > 0)
    return one, one


def _product(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the float64 product and its error."""
    whole = first * second
    high, low = _halves(first)
    other_high, other_low = _halves(second)
    return whole, ((high * other_high - whole) + high * other_low + low * other_high) + low * other_low


def _halves(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split each value into two float64 numbers of at most 26 bits that add up to it."""
    spread = SPLITTER * values
    high = spread - (spread - values)
    return high, values - high


def _sum(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the float64 sum and its error."""
    whole = first + second
    moved = whole - first
    return whole, (first - (whole - moved)) + (second - moved)


def _is_safe(*magnitudes: FloatArray) -> npt.NDArray[np.bool_]:
    held = [np.abs(values) for values in magnitudes]
    safe = [(magnitude >= SMALLEST) & (magnitude <= LARGEST) for magnitude in held]
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*safe)))
