"""Sums of products (convolutions, matrix products): exact sum, overflow of the accumulator, one requantization."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from quantizer.conformance.bounds.pairs import Exact, product, product_over
from quantizer.conformance.checks.accumulators import own_sums
from quantizer.conformance.checks.blocks import judge_blocks, weight_in_blocks
from quantizer.conformance.checks.requantized import (
    CHECK,
    DECLARED,
    Array,
    Declared,
    Real,
    accumulator,
    before_activation,
    replayed_stage,
    rounded_once,
)
from quantizer.conformance.checks.unary import judge_by_reference
from quantizer.conformance.checks.window_sums import window_sums
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import channel_axis
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Rescale

EXACT_LIMIT = 2.0**53  # float64 holds every integer up to here
NEAR = 2.0**-20
"""Numbers as near to a tie as this are worth pairs of float64."""
LARGEST_PRODUCT = 2.0**62
"""Smaller products and their addends fit int64."""


def bilinear(trial: Trial) -> Verdict:
    """Judge a sum of products: the exact sum in its accumulator times the provided multiplier, rounded once."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return judge_by_reference(trial)
    if (name := weight_in_blocks(trial)) is not None:
        return judge_blocks(trial, name, rescale)
    platform, family = trial.target.platform, trial.spec.quantization.family
    # a float32 accumulator is judged by sums over windows, whose integers no float rounds
    whole = window_sums(trial) if family in platform.accumulator.float32 else None
    acc = trial.sums if whole is None else whole
    if trial.reaches(EXACT_LIMIT):
        return inconclusive(CHECK, "the accumulator leaves the integers that float64 holds")
    held, most, refusal = own_sums(trial, acc)
    if refusal is not None:
        return refusal
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return inconclusive(CHECK, f"variant {rescale.variant} declares no rounding stages")
    replayed = declared.float32 or declared.high_multiply or platform.multiplier.overflow == "x86"
    # integer and float32 stages are replayed on a single sum, not on an interval
    if replayed and not np.array_equal(held, most):
        return Verdict(CHECK, "overflow", elements=acc.size, reason="a sum may saturate before it is complete")
    return _multiplied(trial, rescale, declared, before_activation(trial, held), before_activation(trial, most))


def _multiplied(trial: Trial, rescale: Rescale, declared: Declared, held: Array, most: Array) -> Verdict:
    """Judge the codes of sums from *held* to *most*: times the provided multiplier, rounded once."""
    x86 = trial.target.platform.multiplier.overflow == "x86"
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    if declared.float32:
        return replayed_stage(trial, held, mantissa, declared)
    if declared.high_multiply:
        return _high_multiplied(trial, held, mantissa, shift, declared)
    # 64-bit shift instructions take their count modulo 64
    if x86 and rescale.variant == "q15_half_up":
        shift = np.where(shift < 0, shift % 64, shift)
    factor = mantissa * np.exp2(-shift.astype(np.float64))
    value = held * factor / rescale.divisor
    exact = _exact_product(held, mantissa, shift, rescale)
    if x86:
        value, exact = _within_int32(trial, value, exact, keeps_bits=rescale.variant == "q15_half_up")
    if np.array_equal(held, most):
        return rounded_once(trial, Real(value, exact), declared, detail=accumulator(held))
    top = most * factor / rescale.divisor
    return rounded_once(
        trial,
        Real(value, exact),
        declared,
        detail=lambda index: {"accumulator": f"{int(held[index])}..{int(most[index])}, as it saturates in any order"},
        top=Real(top, _exact_product(most, mantissa, shift, rescale)),
    )


def _exact_product(held: Array, mantissa: Array, shift: Array, rescale: Rescale) -> Exact:
    """Return held * mantissa / 2**shift / divisor, exactly."""
    wide_mantissa, wide_shift = np.broadcast_to(mantissa, held.shape), np.broadcast_to(shift, held.shape)

    def exact(index: tuple[int, ...]) -> Fraction:
        number = Fraction(int(held[index])) * Fraction(float(wide_mantissa[index]))
        return number / Fraction(2) ** int(wide_shift[index]) / Fraction(rescale.divisor)

    exponents = -shift.astype(np.int64)
    if rescale.divisor == 1.0:
        return product(held, mantissa, exponents, exact)
    with np.errstate(all="ignore"):
        twice = held * (mantissa * np.exp2(-shift.astype(np.float64))) / rescale.divisor * 2
        # far from whole numbers and ties float64 decides, and pairs would not be read
        if not (np.abs(twice - np.rint(twice)) < NEAR).any():
            return exact
    return product_over(held, mantissa, rescale.divisor, exponents, exact)


def _high_multiplied(trial: Trial, held: Array, mantissa: Array, shift: Array, declared: Declared) -> Verdict:
    """Replay a high multiply in integers: h = floor(a * m / 2**31 + 1/2), after a left shift of a if it is short.

    One rounding remains, of h / 2**n. One mode, half up, judges all channels: where ties go away from zero, a negative
    h is lowered by half a unit, which changes the result of ties only.
    """
    # a high multiply drops 31 places, so a shorter shift needs the sum shifted to the left first
    left, right = np.maximum(31 - shift, 0), np.maximum(shift - 31, 0)
    processor = trial.target.platform.multiplier.overflow == "x86"
    whole = held.astype(np.int64)
    if (
        float(np.abs(held).max(initial=0.0)) * 2.0 ** float(left.max(initial=0)) * float(mantissa.max(initial=0))
        >= LARGEST_PRODUCT
    ):
        # Python's integers, where a product may leave int64
        whole = whole.astype(object)
    if processor:
        whole, left = np.where((left >= 32) & ~_ties_away(trial, declared), 0, whole), left % 32
    sums = np.asarray(whole << left.astype(whole.dtype))
    if processor or declared.wraps:
        sums = (sums + 2**31) % 2**32 - 2**31
    high = np.asarray((sums * mantissa.astype(np.int64).astype(whole.dtype) + 2**30) >> 31)
    units = np.asarray(2 * high - ((high < 0) & _ties_away(trial, declared)))
    wide = np.broadcast_to(right, units.shape)
    value = np.asarray(units.astype(np.float64) * np.exp2(-1.0 - wide))

    def rational(index: tuple[int, ...]) -> Fraction:
        return Fraction(int(units[index])) / Fraction(2) ** (int(wide[index]) + 1)

    exact = product(units, 1.0, -1 - wide, rational)
    return rounded_once(trial, Real(value, exact), Declared("half_up"), detail=accumulator(held))


def _within_int32(trial: Trial, value: Array, exact: Exact, *, keeps_bits: bool) -> tuple[Array, Exact]:
    """Return v/s where it rounds to an int32, else its low 32 bits or the smallest int32; adding z wraps too."""
    held, zero = value.copy(), int(trial.output.zero_point)
    for place in np.argwhere((value >= 2.0**31 - 0.5) | (value <= -(2.0**31) - 0.5)):
        index = tuple(int(i) for i in place)
        kept = math.floor(exact(index) + Fraction(1, 2)) if keeps_bits else -(2**31)
        kept = (kept + 2**31) % 2**32 - 2**31
        held[index] = (kept + zero + 2**31) % 2**32 - 2**31 - zero
    return held, lambda index: exact(index) if held[index] == value[index] else Fraction(held[index])


def _ties_away(trial: Trial, declared: Declared) -> Array:
    """Return where ties go away from zero, shaped to broadcast against the output."""
    if not declared.vector:
        return np.array(declared.rounding == "half_away")
    axis = channel_axis(trial.spec, trial.bound, len(trial.output_shape)) or 0
    channels = trial.output_shape[axis]
    behind = np.arange(channels) >= channels // declared.vector * declared.vector
    return behind.reshape([-1 if place == axis else 1 for place in range(len(trial.output_shape))])
