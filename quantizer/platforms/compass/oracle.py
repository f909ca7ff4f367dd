"""A second implementation of Compass's softmax of powers of two, in numpy.

It is checked against runs of the original (cases/reference/compass). Generic stages judge a softmax by a table.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from quantizer.conformance.oracle import Array, Asked

F32 = np.float32
LOG2_E = F32(1.442695)
MULTIPLIER_BITS = 13
LARGEST_SHIFT = 31
LARGEST_SUM = 2**31 - 1
MANTISSA_BITS = 30
ROOT_HALF = 1518500250
"""The mantissa above which 1/2 is added to a logarithm."""


def softmax(asked: Asked) -> Array | None:
    """Return the output codes that the provided numbers prescribe; None for a softmax by a table.

    Distances become whole exponents, powers are added, and the sum's logarithm, rounded to a whole or a half, is
    subtracted from every exponent.
    """
    numbers = asked.numbers
    if "halves" not in numbers:
        return None
    codes = asked.codes["x"].astype(np.int64)
    distances = codes - codes.max(axis=asked.axis, keepdims=True)
    # float64: a distance of at most 16 bits times 13 bits is exact
    exponents = np.floor(distances * numbers["multiplier"] * 2.0 ** -numbers["shift"]).astype(np.int64)
    point, halves = numbers["largest_exponent"], numbers["halves"]
    total = np.clip(_power(exponents + point).sum(axis=asked.axis, keepdims=True), 1, LARGEST_SUM)
    # frexp's fraction is in [1/2, 1): its exponent is one more than that of the leading bit
    whole = np.frexp(total.astype(np.float64))[1] - 1
    # the mantissa in [1, 2) with 30 places, compared with the square root of two
    above = total * 2 ** (MANTISSA_BITS - whole) > ROOT_HALF
    scale = 2**halves
    logarithm = (whole - point) * scale + (above if halves else 0)
    # // rounds down, as the arithmetic shift does
    return _power(((exponents + asked.scheme.activation.bits) * scale - logarithm) // scale)


def softmax_numbers(asked: Asked) -> Mapping[tuple[str, ...], tuple[int, ...]]:
    """Return the multiplier from codes to exponents, the largest exponent that sums can hold, and the form.

    The original divides a number by a tensor as the tensor's reciprocal times the number: two float32 roundings. For a
    softmax by a table there are no numbers.
    """
    if "halves" not in asked.numbers:
        return {}
    ratio = F32(1.0) / F32(1.0 / asked.grids["x"].scale) * LOG2_E
    # as many places as keep the multiplier below 2**13
    shift = min(LARGEST_SHIFT, int(np.floor(np.log2(F32(2.0**MULTIPLIER_BITS - 1) / ratio))))
    multiplier = int(np.floor(ratio * F32(2.0**shift) + F32(0.5)))
    return {
        # a ratio of 1 is written without a shift
        ("multiplier", "shift"): (1, 0) if multiplier == 2.0**shift else (multiplier, shift),
        ("largest_exponent",): (31 - int(np.floor(np.log2(asked.shape[asked.axis]))),),
        ("halves",): (int(asked.platform.tables.fast.get("softmax") == "power_of_two_halves"),),
    }


def _power(exponents: Array) -> Array:
    return np.where(exponents >= 0, 2 ** np.clip(exponents, 0, 62), 0)
