"""Expected multipliers and shifts: a second implementation of the platforms' rules that shares nothing with `numerics`.

Sources: cases/reference, and the running systems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from quantizer.conformance.expected.parameters import Expected

F32 = np.float32
FACTOR_LIMIT = 32767
FIXED_POINT = (
    "q31_single",
    "q31_double",
    "q31_half_up",
    "q31_half_up_in_8_lanes",
    "q15_half_up",
    "q15_single",
    "half_away",
    "q31_wrapping_left",
    "q31_wrapping",
)
"""Variants whose multiplier splits the real ratio into a 31-bit fraction and a power of two."""
ROUND_ONCE = ("q31_single", "q15_single", "half_away")
"""The fixed-point variants that round once: their result does not depend on the shift of a multiplier."""
RELAY_BITS = 8
"""Bits that a clip with two roundings adds to a code, for outputs of at most as many bits."""


@dataclass(frozen=True)
class Shifts:
    """Which shifts a platform's integer multipliers have."""

    largest: int = 31
    """The largest shift."""
    positive: bool = False
    """Whether a ratio that needs a negative shift gets the shift 0 and the largest multiplier."""


USUAL = Shifts()


def product_ratios(inputs: list[Expected], output: Expected, channels: int) -> list[Any]:
    """Return float32 ratios steps_y / (steps_x * steps_w) per channel."""
    product: Any = F32(1.0)
    for expected in inputs:
        product = product * _steps(expected)
    ratio = _steps(output) / product
    return list(np.broadcast_to(ratio, (channels,)))


def _steps(expected: Expected) -> Any:
    """Return float32 codes per unit: `steps` if the platform stores them, else 1 / scale."""
    return np.asarray(1.0 / expected.scale if expected.steps is None else expected.steps, dtype=F32)


def float32_multiplier(ratio: Any, bits: int, shifts: Shifts = USUAL) -> tuple[float, int]:
    """Return the multiplier and shift of one float32 ratio."""
    mantissa, shift = _plain(ratio, bits, shifts)
    return (1.0, 0) if mantissa == 2.0**shift else (mantissa, shift)


def _plain(ratio: Any, bits: int, shifts: Shifts = USUAL) -> tuple[float, int]:
    """Return one ratio's multiplier and shift, without the shortcut for powers of two."""
    top = F32(2.0**bits - 1)
    shift = min(shifts.largest, int(np.floor(np.log2(top / F32(ratio)))))
    # no shift to the left exists, so the ratio saturates
    if shifts.positive and shift < 0:
        return float(top), 0
    if (wide := _half_up(F32(ratio) * F32(2.0**shift))) <= top:
        return wide, shift
    return _half_up(F32(ratio) * F32(2.0 ** (shift - 1))), shift - 1


def _half_up(number: Any) -> float:
    """Round a float32 number half up in float32; from 2**23 on it is whole, and no half can be added to it."""
    return float(number if number >= F32(2.0**23) else np.floor(number + F32(0.5)))


def unified(ratios: list[Any], bits: int, shifts: Shifts = USUAL) -> list[tuple[float, int]]:
    """Return multipliers of several channels under one shift; multiplier 1 and shift 0 for all if every ratio is 1."""
    own = [_plain(ratio, bits, shifts) for ratio in ratios]
    if all(mantissa == 2.0**shift for mantissa, shift in own):
        own = [(1.0, 0)] * len(own)
    shift = max(0, *(s for _, s in own))
    # exact: mantissas of at most 31 bits, shifted to the left
    mantissas = [int(m * 2.0 ** (shift - s)) for m, s in own]
    while max(mantissas) > FACTOR_LIMIT:
        mantissas = [m >> 1 for m in mantissas]
        shift -= 1
    return [(float(m), shift) for m in mantissas]


def separate(ratios: list[Any], bits: int, shifts: Shifts = USUAL) -> list[tuple[float, int]]:
    """Return multipliers of channels with their own shifts; multiplier 1 and shift 0 for all if every ratio is 1."""
    own = [_plain(ratio, bits, shifts) for ratio in ratios]
    return [(1.0, 0)] * len(own) if all(mantissa == 2.0**shift for mantissa, shift in own) else own


def shift_choices(ratio: Fraction, bits: int, ceiling: int) -> set[int]:
    """Return the shifts that the rule `floor(log2((2**bits - 1) / ratio))` can give when log2 is taken in float32."""
    exact = math.log2(2**bits - 1) - (math.log2(ratio.numerator) - math.log2(ratio.denominator))
    # far above the error of a float32 logarithm
    slack = 2.0**-20 * max(1.0, abs(exact))
    return {min(ceiling, math.floor(exact - slack)), min(ceiling, math.floor(exact + slack))}


def crossed_sum(
    steps_a: Any,
    steps_b: Any,
    steps_y: Any,
    bits: int,
    shifts: Shifts = USUAL,
    *,
    equal_zero: bool,
    adds: bool = True,
) -> tuple[float, int, float, float]:
    """Return (multiplier, shift, factor of a, factor of b) of two operands; only ADD rescales equal scales."""
    a, b, y = F32(steps_a), F32(steps_b), F32(steps_y)
    if max(a, b) / (min(a, b) + np.finfo(F32).eps) <= 1 and equal_zero:
        return (*float32_multiplier(y / a if adds else F32(1.0), bits, shifts), 1.0, 1.0)
    mantissa_a, shift_a = float32_multiplier(a, 15)
    mantissa_b, shift_b = float32_multiplier(b, 15)
    common = max(shift_a, shift_b)
    of_a = F32(mantissa_b) * F32(2.0 ** (common - shift_b))
    of_b = F32(mantissa_a) * F32(2.0 ** (common - shift_a))
    ratio = y / (b * a) / F32(2.0**common)
    # both factors shrink alike, so that their proportion stays
    shrink = max(of_a, of_b) / F32(FACTOR_LIMIT)
    if shrink > 1:
        of_a, of_b, ratio = of_a / shrink, of_b / shrink, ratio * shrink
    mantissa, shift = float32_multiplier(ratio, bits, Shifts(shifts.largest))
    # a left shift goes into the multiplier
    if shift < 0:
        mantissa, shift = float(min(FACTOR_LIMIT, max(1.0, mantissa * 2.0**-shift))), 0
    clipped = (float(min(FACTOR_LIMIT, max(0.0, np.rint(k)))) for k in (of_a, of_b))
    return (mantissa, shift, *clipped)  # type: ignore[return-value]


def area_of_one(bits: int) -> tuple[float, int]:
    """Return multiplier and shift of a window with one element among larger ones; there is no shortcut for 1."""
    return _plain(F32(1.0), bits)


def area_reciprocal(terms: int) -> tuple[int, int]:
    """Return the multiplier and shift of 1 / *terms*: (2**30 + 1) * 2**k over a number in (2**(k-1), 2**k]."""
    k = 0
    while terms > 1 << k:
        k += 1
    return ((1 << 30) + 1) * (1 << k) // terms, 30 + k


def ratio_of(scales: list[float], output: float, variant: str, arithmetic: str, *, per_channel: bool) -> float:
    """Return the ratio of scales as the kernel of the family forms it: in float64, or partly in float32."""
    narrow: Any = F32(scales[0])
    for scale in scales[1:]:
        narrow = narrow * F32(scale)
    if arithmetic == "float32":
        return float(narrow / F32(output))
    of_one = arithmetic == "float32_product_of_one" and not per_channel and variant != "half_away"
    if arithmetic == "float32_product" or of_one:
        return float(narrow) / output
    return math.prod(scales) / output


def fixed_point(
    scales: list[float],
    output: float,
    variant: str,
    arithmetic: str,
    *,
    per_channel: bool,
    clamped: bool,
    bits: int = 31,
) -> tuple[float, int]:
    """Return the multiplier of *bits* and shift of a ratio of scales; the float64 ratio itself for half_away."""
    ratio = ratio_of(scales, output, variant, arithmetic, per_channel=per_channel)
    if variant == "half_away":
        return ratio, 0
    fraction, exponent = math.frexp(ratio)
    mantissa = math.floor(fraction * 2**bits + 0.5)
    if mantissa == 2**bits:
        mantissa, exponent = mantissa // 2, exponent + 1
    if exponent < -31:
        mantissa, exponent = 0, 0
    elif exponent > 30 and clamped:
        mantissa, exponent = 2**bits - 1, 30
    if variant != "q15_half_up":
        return float(mantissa), bits - exponent
    # after its 15 bits a large multiplier is padded with zeros, so that the shift stays 1 or more
    behind = max(0, exponent - 14) if clamped else 0
    return float(min(0x7FFF, (mantissa + 2**15) >> 16) << behind), 15 - exponent + behind


def right_shifted(ratio: float, bits: int, largest: int) -> tuple[int, int]:
    """Return the multiplier and shift of a ratio; instead of a shift above *largest* the multiplier loses low bits."""
    fraction, exponent = math.frexp(ratio)
    mantissa, shift = math.floor(Fraction(fraction) * 2**bits + Fraction(1, 2)), bits - exponent
    if mantissa == 2**bits:
        mantissa, shift = mantissa // 2, shift - 1
    lost = min(31, max(0, shift - largest))
    return mantissa >> lost, min(shift, largest)


def as_multiplier(factor: Fraction) -> tuple[int, int]:
    """Return an integer and a shift of at least 1 that represent *factor*, whose denominator is a power of two."""
    shift = max(1, factor.denominator.bit_length() - 1)
    return int(factor * 2**shift), shift
