"""Normally distributed random numbers, equal on every processor: hashed from a seed, computed in plain IEEE operations.

The logarithm and the cosine of a library have other last bits under other instruction sets. Here both are polynomials
of sums, products and one quotient, each of which IEEE 754 requires to be correctly rounded.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RAW = 16
"""The number of random bytes for a deviate."""
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
"""The natural logarithm of 2 in 32 bits, so that its products with exponents are exact."""
LN2_LOW = 1.9082149292705877e-10
"""The remainder of the natural logarithm of 2."""
LOGARITHM = [1 / (2 * k + 1) for k in range(13)]
"""Coefficients of log m = 2 f (1 + f^2 / 3 + f^4 / 5 + ...), with f = (m - 1) / (m + 1) and |f| < 0.172."""
COSINE = [(-1) ** k / math.factorial(2 * k) for k in range(9)]
SINE = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]
"""Coefficients of the Taylor series, which serve for angles up to a quarter of pi."""


def deviates(shape: tuple[int, ...], seed: tuple[int, ...]) -> NDArray[Any]:
    """Return float32 normal deviates of *shape*, by the Box-Muller method from the SHAKE-128 bytes of *seed*."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = hashlib.shake_128(repr(seed).encode()).digest(RAW * count)
    # the upper 53 bits, as many as a float64 in [0, 1) holds
    uniform = (np.frombuffer(raw, "<u8").reshape(2, -1) >> np.uint64(11)) * 2.0**-53
    # 1 - u is never 0, so the logarithm is finite
    radius = np.sqrt(np.abs(2.0 * logarithm(1.0 - uniform[0])))
    found: NDArray[Any] = (radius * cosine_of_turns(uniform[1])).astype(np.float32).reshape(shape)
    return found


def logarithm(x: NDArray[Any]) -> NDArray[Any]:
    """Return the natural logarithm of positive float64 numbers within 3 ulp, the same bits on every processor."""
    mantissa, exponent = np.frexp(x)
    # the mantissa moves from [1/2, 1) to [sqrt(1/2), sqrt(2)), where the series converges fast
    small = mantissa < math.sqrt(0.5)
    mantissa, exponent = np.where(small, 2.0 * mantissa, mantissa), exponent - small
    fraction = (mantissa - 1.0) / (mantissa + 1.0)
    of_mantissa = 2.0 * fraction * _polynomial(fraction * fraction, LOGARITHM)
    # the small parts first, so that the largest one is rounded only once
    return np.asarray(exponent * LN2_HIGH + (of_mantissa + exponent * LN2_LOW))


def cosine_of_turns(x: NDArray[Any]) -> NDArray[Any]:
    """Return cos(2 pi x) of float64 numbers in [0, 1] within 3 ulp, the same bits on every processor."""
    # a nearest quarter turn leaves an angle of at most a quarter of pi
    quarters = np.rint(4.0 * x)
    angle = (x - 0.25 * quarters) * (2.0 * math.pi)
    square = angle * angle
    cosine, sine = _polynomial(square, COSINE), angle * _polynomial(square, SINE)
    quarter = quarters.astype(np.int64) % 4
    return np.choose(quarter, [cosine, -sine, -cosine, sine])


def _polynomial(x: NDArray[Any], coefficients: Sequence[float]) -> NDArray[Any]:
    """Return the polynomial of *x* by Horner's rule, lowest coefficient first."""
    found = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        found = found * x + coefficient
    return found
