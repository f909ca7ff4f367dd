"""gemmlowp's fixed-point functions in numpy. The judge's results of softmax, 16-bit sigmoid and tanh use them.

Source: gemmlowp's fixedpoint.h. The module shares no code with the kernels, and computes its constants itself.
"""

from __future__ import annotations

import math

import numpy as np

from quantizer.conformance.oracle import Array


class Numbers:
    """Fixed-point numbers of one width. Without integer bits, the largest integer represents 1."""

    def __init__(self, bits: int) -> None:
        self.bits, self.top = bits, 1 << (bits - 1)

    def one(self, integer_bits: int) -> int:
        """Return the integer that represents 1 with this many integer bits, or the largest one."""
        return self.top - 1 if integer_bits == 0 else self.top >> integer_bits

    def constant(self, value: float, integer_bits: int = 0) -> int:
        """Return the integer that represents a real constant: rounded half up to 32 bits, then to the width."""
        wide = math.floor(value * 2.0 ** (31 - integer_bits) + 0.5)
        return wide if self.bits == 32 else (wide + 2**15) >> 16

    def cut(self, x: Array) -> Array:
        """Return *x* saturated to the bits of this format."""
        return np.clip(x, -self.top, self.top - 1)

    def times(self, a: Array, b: Array | int) -> Array:
        """Return the high half of 2ab, rounded half up."""
        return np.asarray((a * b + self.top // 2) // self.top)

    def halved(self, x: Array, places: int) -> Array:
        """Return x * 2**-places, ties away from zero."""
        return away(x, np.asarray(places))

    def exp(self, a: Array, integer_bits: int) -> Array:
        """Return exp of a <= 0: a series within a quarter, times one factor for each bit of the rest."""
        quarter = (self.top >> integer_bits) // 4
        # in [-1/4, 0)
        inner = a % quarter - quarter
        # around -1/8, without integer bits
        x = self.cut(inner << integer_bits) + self.top // 8
        x2 = self.times(x, x)
        x3, x4 = self.times(x2, x), self.times(x2, x2)
        # x**2 / 2 + x**3 / 6 + x**4 / 24, by Horner's rule
        tail = self.halved(self.times(self.halved(x4, 2) + x3, self.constant(1 / 3)) + x2, 1)
        eighth = self.constant(math.exp(-1 / 8))
        result = self.cut(eighth + self.times(x + tail, eighth))
        # how many quarters are left; bit k of this number stands for 2**(k - 2)
        whole = (inner - a) // quarter
        for place in range(integer_bits + 2):
            factor = self.constant(math.exp(-(2.0 ** (place - 2))))
            result = np.where(whole >> place & 1, self.times(result, factor), result)
        # for a = 0 the series starts at -1/4 and `whole` is -1, so that exp(0) = 1 is set apart
        return np.where(a == 0, self.top - 1, result)

    def newton(self, a: Array) -> Array:
        """Return 2 / (1 + a) with two integer bits, by Newton's method."""
        # (1 + a) / 2, rounded half up: the largest integer represents 1, and top is one more than it
        half = (a + self.top) // 2
        x = self.constant(48 / 17, 2) + self.times(half, self.constant(-32 / 17, 2))
        for _ in range(3):
            # << 2 removes the two integer bits that the product has too many
            x = x + self.cut(self.times(x, self.one(2) - self.times(half, x)) << 2)
        return np.asarray(x)

    def reciprocal(self, a: Array) -> Array:
        """Return 1 / (1 + a)."""
        return self.cut(self.newton(a) << 1)


def away(x: Array, places: Array) -> Array:
    """Return x * 2**-places, ties away from zero."""
    half = (np.int64(1) << places) >> 1
    return np.asarray(np.where(x < 0, -((half - x) >> places), (x + half) >> places))


def exponentials_of(scale: float, count: int) -> Array:
    """Return gemmlowp's exponentials of the first *count* distances in units of 2**-31, 0 beyond a distance of 31."""
    numbers = Numbers(32)
    # 26 = 31 - 5 places: distances have five integer bits
    fraction, exponent = math.frexp(min(scale * 2.0**26, 2.0**31 - 1))
    multiplier = math.floor(fraction * 2.0**31 + 0.5)
    # the fraction was rounded up to 1
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    distance = np.arange(count, dtype=np.int64)
    # farther distances would leave the five integer bits (CalculateInputRadius)
    near = distance <= math.floor(31 * 2.0 ** (26 - exponent))
    scaled = numbers.times(np.where(near, -distance, 0) << exponent, multiplier)
    return np.where(near, numbers.exp(scaled, 5), 0)
