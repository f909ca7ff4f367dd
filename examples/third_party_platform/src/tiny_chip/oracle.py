"""What the chip's activation unit must take and give, stated apart from the kernel: Python integers, no torch."""

import math
from fractions import Fraction

import numpy as np

from quantizer.conformance.oracle import Asked

BITS = 16


def _ratio(asked: Asked) -> Fraction:
    return Fraction(float(asked.grids["x"].scale)) / Fraction(float(asked.output.scale))


def relu_numbers(asked: Asked) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Return the multiplier in [2**15, 2**16) that is nearest to the ratio of scales, and its shift."""
    shift = BITS - math.frexp(float(_ratio(asked)))[1]
    multiplier = math.floor(Fraction(float(_ratio(asked))) * Fraction(2) ** shift + Fraction(1, 2))
    # the ratio rounds up to a power of two, which needs one bit more
    if multiplier == 1 << BITS:
        multiplier, shift = multiplier >> 1, shift - 1
    return {("multiplier", "shift"): (multiplier, shift)}


def relu(asked: Asked) -> np.ndarray:
    """Return floor(v) where v is whole or floor(v) is odd, else floor(v) + 1: the only odd number within one step of v."""
    unit = Fraction(asked.numbers["multiplier"]) / Fraction(2) ** asked.numbers["shift"]

    def rounded(code: int) -> int:
        value = max(code, 0) * unit
        below = math.floor(value)
        return below if value == below or below % 2 else below + 1

    return np.vectorize(rounded, otypes=[np.int64])(asked.centred("x")) + int(asked.output.zero_point)


def relu_lost(asked: Asked) -> np.ndarray:
    """Return what accuracy grants beyond half a step: half a step for rounding to odd, and what the multiplier is off."""
    unit = Fraction(asked.numbers["multiplier"]) / Fraction(2) ** asked.numbers["shift"]
    return 0.5 + np.maximum(asked.centred("x"), 0) * abs(float(unit - _ratio(asked)))
