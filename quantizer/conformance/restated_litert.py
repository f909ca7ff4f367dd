"""LiteRT's rules for numbers and tables once more, in numpy, sharing nothing with numerics.

Source: LiteRT 2.3 itself, on which each was shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
F32 = np.float32


def _away(values: Array) -> Array:
    return np.asarray(np.trunc(values + np.copysign(0.5, values)))


def fixed(ratio: float) -> tuple[int, int]:
    """Return TensorFlow Lite's 31-bit multiplier of a ratio and its shift to the right."""
    fraction, exponent = math.frexp(ratio)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    if exponent < -31:
        return 0, 31
    return (mantissa, 31 - exponent) if exponent <= 30 else (2**31 - 1, 1)


def widened_sum(scales: list[float], output: float, places: int) -> tuple[list[float], tuple[int, int]]:
    """Return the factors of ADD and SUB as real numbers, and the multiplier and shift of the sum."""
    twice = 2 * max(scales)
    factors = [math.ldexp(mantissa, -shift) for mantissa, shift in (fixed(scale / twice) for scale in scales)]
    return factors, fixed(twice / (output * 2.0**places))


def on_one_grid(ratios: list[float]) -> tuple[list[float], int]:
    """Return XNNPACK's whole factors of an addition, the largest of 21 bits, and their shift."""
    shift = 20 - math.floor(math.log2(max(ratios)))
    return [float(np.rint(ratio * 2.0**shift)) for ratio in ratios], shift


def folded(ratio: float, count: int) -> tuple[int, int]:
    """Return the multiplier of a mean, divided by the number of its terms in integers, and its shift."""
    mantissa, shift = fixed(ratio)
    places = min(math.floor(math.log2(count)), 32, 62 - shift)
    return mantissa * 2**places // count, shift + places


def to_grid(scale: float, *, tanh: bool, shortcut: bool) -> tuple[int, int]:
    """Return what brings a 16-bit code to the grid of the logistic table; (0, shift) for gemmlowp's function of it.

    *shortcut*: a scale within a thousandth (of log2) of 2**-12, for tanh of 2**-11 too, is taken for it.
    """
    logarithm = F32(math.log(scale)) * (F32(1.0) / F32(math.log(2.0)))
    places = int(np.rint(logarithm)) + 12
    if abs(logarithm - np.rint(logarithm)) < 1e-3 and 0 <= places <= int(tanh):
        return (0, places) if shortcut else (3 * 2**places, 0)
    number, shift = scale * 12288.0, 0
    while number <= 16383.5 and shift < 31:
        number, shift = 2 * number, shift + 1
    return int(number), shift


def logistic_entries(count: int) -> Array:
    """Return the entries of the 16-bit logistic table, 24 to a unit."""
    place = np.arange(count) / 24.0
    curve, middle, following = (65536 / (1 + np.exp(-(place + step))) for step in (0.0, 1 / 48, 1 / 24))
    entries = _away(curve + (middle - (curve + following) / 2) / 2).astype(np.int64)
    entries[-1] = 65535
    return entries


def chord_entries(f: Callable[[Array], Array], low: float, high: float, count: int) -> Array:
    """Return count + 1 entries of f in units of 2**-15, all but the last lowered by half of what its chord lies above."""
    width = (high - low) / count
    place = low + width * np.arange(count)
    curve, middle, following = (32768 * f(place + step) for step in (0.0, width / 2, width))
    above = _away((following + _away(curve)) / 2) - _away(middle)
    entries = np.append(_away(curve) - _away(above / 2), _away(32768 * f(np.array([high]))))
    return np.asarray(np.clip(entries, -32768, 32767), dtype=np.int64)
