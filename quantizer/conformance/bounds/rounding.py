"""Which codes an integer forward may give for an exact real number that is rounded once (the `arithmetic` check)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from quantizer.conformance.bounds.interval import FloatArray
from quantizer.conformance.bounds.pairs import WHOLE, Exact, Pair, rounded
from quantizer.core.rounding_modes import RoundingMode

CodeArray = npt.NDArray[np.int64]

RESOLUTION = 2.0**-40
"""Error of v/s in float64, relative to the sum of the magnitudes of its terms."""
UNREACHABLE = 2.0**62
"""A number beyond every code that still fits int64."""
HALF = Fraction(1, 2)


@np.errstate(all="ignore")
def code_interval(
    v_over_s: FloatArray,
    *,
    e_over_s: npt.ArrayLike = 0.0,
    magnitude: npt.ArrayLike = 0.0,
    zero_point: npt.ArrayLike = 0,
    qmin: int,
    qmax: int,
    rounding: RoundingMode,
    zero_point_first: bool = False,
    exact: Exact | None = None,
) -> tuple[CodeArray, CodeArray]:
    """Return the smallest and the largest allowed code of every element.

    *v_over_s*: the exact real number in steps of the output, as float64; *magnitude*: the sum of |terms|;
    *e_over_s*: what further rounding stages add, in steps. With `t = 2^-40 * max(1, magnitude)`:

        nearest     sat(ceil(v/s - e - 1/2 - t) + z) .. sat(floor(v/s + e + 1/2 + t) + z)
        directed    sat(dir(v/s - e - t) + z)        .. sat(dir(v/s + e + t) + z)
        stochastic  sat(floor(v/s - e - t) + z)      .. sat(ceil(v/s + e + t) + z)

    If e = 0 and float64 still leaves two codes, *exact* decides by the mode: in pairs of float64, else in rationals.
    *zero_point_first*: the mode sees v/s + z, one more term (half_even: the parity of the code; half_away and
    toward_zero: its sign). A v that is not finite allows any code.
    """
    v, z = np.asarray(v_over_s, np.float64), np.asarray(zero_point, np.int64)
    e = np.asarray(e_over_s, np.float64)
    # the judge's own error grows with the terms of a sum, not with what is left of them
    size = np.maximum(np.abs(v), magnitude)
    inner = z if zero_point_first else np.zeros_like(z)
    t = RESOLUTION * np.maximum(np.maximum(1.0, size + np.abs(inner)), e)
    spread = e + t + 0.5 if rounding.startswith("half") else e + t
    w = v + inner  # the mode rounds this number, which may include the zero point
    low = _saturated(_lowest(w - spread, rounding), z - inner, qmin, qmax, -UNREACHABLE)
    high = _saturated(_highest(w + spread, rounding), z - inner, qmin, qmax, UNREACHABLE)
    if exact is not None:
        # with a further error, two codes may both be right
        open_choice = (low != high) & (e == 0)
        if rounding == "stochastic":  # both neighbouring codes are right unless an integer lies within t
            open_choice &= np.ceil(w - t) <= np.floor(w + t)
        if open_choice.any():
            _decide(low, high, open_choice, exact, (inner, z), rounding, qmin, qmax)
    return low, high


def _decide(
    low: CodeArray,
    high: CodeArray,
    where: npt.NDArray[np.bool_],
    exact: Exact,
    zeros: tuple[CodeArray, CodeArray],
    rounding: RoundingMode,
    qmin: int,
    qmax: int,
) -> None:
    """Set the codes at *where* to the codes of the exact numbers.

    zeros: the part of the zero point that is added before rounding, and the whole zero point.
    """
    befores, wholes = (np.broadcast_to(part, low.shape) for part in zeros)
    if isinstance(exact, Pair):
        nearest, left = (np.broadcast_to(part, low.shape) for part in (exact.nearest, exact.left))
        known = where & (np.abs(nearest) < WHOLE)
        inner = befores[known]
        pair = Pair(nearest[known], left[known], exact.rational)
        for end, found in zip((low, high), rounded(pair, inner, rounding), strict=True):
            end[known] = np.clip(found + (wholes[known] - inner), qmin, qmax)
        where = where & ~known
    for index in map(tuple, np.argwhere(where).tolist()):
        before = int(befores[index])
        after = int(wholes[index]) - before
        codes = rational_codes(exact(index) + before, rounding)
        low[index], high[index] = (min(max(code + after, qmin), qmax) for code in codes)


def rational_codes(value: Fraction, rounding: RoundingMode) -> tuple[int, int]:
    """Return the integers to which *rounding* may round *value*: one, or both neighbours if it is stochastic."""
    floor, ceil = math.floor(value), math.ceil(value)
    if rounding == "stochastic":
        return floor, ceil
    one = _directed(value, rounding) if rounding in ("up", "down", "toward_zero") else _nearest(value, rounding)
    return one, one


def _directed(value: Fraction, rounding: RoundingMode) -> int:
    if rounding == "toward_zero":
        return math.trunc(value)
    return math.ceil(value) if rounding == "up" else math.floor(value)


def _nearest(value: Fraction, rounding: RoundingMode) -> int:
    below = math.floor(value)
    if value - below != HALF:
        return below if value - below < HALF else below + 1
    goes_up = {
        "half_even": below % 2 == 1,
        "half_up": True,
        "half_down": False,
        "half_away": value > 0,
        "half_toward_zero": value < 0,
    }
    return below + goes_up[rounding]


def _lowest(number: FloatArray, rounding: RoundingMode) -> FloatArray:
    """Return the lower end before saturation: the mode of *number*, ceil for nearest, floor for stochastic."""
    if rounding == "toward_zero":
        return np.trunc(number)
    return np.floor(number) if rounding in ("down", "stochastic") else np.ceil(number)


def _highest(number: FloatArray, rounding: RoundingMode) -> FloatArray:
    """Return the upper end before saturation: the mode of *number*, floor for nearest, ceil for stochastic."""
    if rounding == "toward_zero":
        return np.trunc(number)
    return np.ceil(number) if rounding in ("up", "stochastic") else np.floor(number)


def _saturated(number: FloatArray, z: CodeArray, qmin: int, qmax: int, unknown: float) -> CodeArray:
    """Return *number* + z clamped to the codes; *unknown* stands in for NaN."""
    bounded = np.fmin(np.fmax(np.where(np.isnan(number), unknown, number), -UNREACHABLE), UNREACHABLE)
    return np.asarray(np.minimum(np.maximum(bounded.astype(np.int64) + z, qmin), qmax))
