"""Expected numbers of fixed-point sums and means: a second implementation that shares nothing with `numerics`."""

from __future__ import annotations

import math

import numpy as np

from quantizer.conformance.oracle import fixed

F32 = np.float32


def widened_sum(scales: list[float], output: float, places: int) -> tuple[list[float], tuple[int, int]]:
    """Return the factors of ADD and SUB as real numbers, and the multiplier and shift of the sum."""
    twice = 2 * max(scales)
    factors = [math.ldexp(mantissa, -shift) for mantissa, shift in (fixed(scale / twice) for scale in scales)]
    return factors, fixed(twice / (output * 2.0**places))


def on_one_grid(ratios: list[float]) -> tuple[list[float], int]:
    """Return the whole factors of an addition, the largest of 21 bits, and their shift."""
    shift = 20 - math.floor(math.log2(max(ratios)))
    return [float(np.rint(ratio * 2.0**shift)) for ratio in ratios], shift


def folded(ratio: float, count: int) -> tuple[int, int]:
    """Return the multiplier and shift of a mean: the ratio's multiplier, divided in integers by the terms."""
    mantissa, shift = fixed(ratio)
    # a right shift of more than 62 places could not be rounded in int64
    places = min(math.floor(math.log2(count)), 32, 62 - shift)
    return mantissa * 2**places // count, shift + places
