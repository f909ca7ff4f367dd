"""Fixed-point functions of gemmlowp. TensorFlow Lite's reference softmax, 16-bit sigmoid and tanh use them.

A number is an integer of `bits` bits, `integer_bits` of them before the binary point. Source: gemmlowp's fixedpoint.h.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EXP_OF_EIGHTH = 1895147668  # exp(-1/8) * 2**31
THIRD = 715827883  # 2**31 / 3
FACTORS = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""(k, exp(-2**k) in units of 2**-31)."""
NEWTON_START, NEWTON_SLOPE = 1515870810, -1010580540
"""48/17 and -32/17 in units of 2**-29."""
NEWTON_STEPS = 3  # as in gemmlowp; each step about doubles the correct bits of the start, 48/17 - 32/17 * x


@dataclass(frozen=True)
class FixedPoint:
    """Arithmetic on integers of *bits* bits, 16 or 32, kept in int64."""

    bits: int

    def unit(self, integer_bits: int, exponent: int = 0) -> int:
        """Return 2**exponent; with no integer bits, 1 is represented by the largest number."""
        if integer_bits == exponent == 0:
            return (1 << (self.bits - 1)) - 1
        return 1 << (self.bits - 1 - integer_bits + exponent)

    def saturate(self, x: Tensor) -> Tensor:
        """Return *x* clamped to the integers of this width."""
        return x.clamp(-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)

    def times(self, a: Tensor, b: Tensor | int) -> Tensor:
        """Return the high half of 2ab, rounded half up, as SaturatingRoundingDoublingHighMul does."""
        return (a * b + (1 << (self.bits - 2))) >> (self.bits - 1)

    def shifted(self, x: Tensor, places: int) -> Tensor:
        """Return x * 2**places: saturated to the left, rounded half away from zero to the right."""
        if places >= 0:
            return self.saturate(x << places)
        return divide_by_power(x, torch.tensor(-places))

    def constant(self, value: int) -> int:
        """Return a constant of 32 bits in this width."""
        # gemmlowp rounds the 32-bit constant, not the real number: the result can differ in the last bit
        return value if self.bits == 32 else (value + (1 << 15)) >> 16

    def exp_of_negative(self, a: Tensor, integer_bits: int) -> Tensor:
        """Return exp(a), a <= 0, without integer bits."""
        # a = rest - whole: rest in [-1/4, 0) by a polynomial, then one factor for each bit of whole
        # 1/4 in the input's units
        quarter = self.unit(integer_bits, -2)
        rest = (a & (quarter - 1)) - quarter
        # shifted by the integer bits, the rest uses the full width as a fraction
        result = self._exp_of_quarter(self.shifted(rest, integer_bits))
        whole = rest - a
        for exponent, factor in FACTORS:
            # a format has no bits above its integer bits
            if integer_bits > exponent:
                chosen = (whole & self.unit(integer_bits, exponent)) != 0
                result = torch.where(chosen, self.times(result, self.constant(factor)), result)
        # for a = 0 the rest is -1/4 and `whole` is negative, so that exp(0) = 1 is set apart
        return torch.where(a == 0, self.unit(0), result)

    def _exp_of_quarter(self, a: Tensor) -> Tensor:
        """Return exp(a) of -1/4 <= a < 0 by four terms around -1/8."""
        first, x = self.constant(EXP_OF_EIGHTH), a + self.unit(0, -3)
        square = self.times(x, x)
        cube, fourth = self.times(square, x), self.times(square, square)
        # exp(-1/8 + x) = exp(-1/8) * (1 + x + x**2 / 2 + x**3 / 6 + x**4 / 24): ((x**4 / 4 + x**3) / 3 + x**2) / 2
        rest = self.times(self.shifted(fourth, -2) + cube, self.constant(THIRD)) + square
        total = first + self.times(x + self.shifted(rest, -1), first)
        # in 16 bits gemmlowp adds with saturation
        return self.saturate(total) if self.bits == 16 else total

    def _reciprocal(self, a: Tensor) -> Tensor:
        """Return 2 / (1 + a), 0 <= a <= 1, with two integer bits, by three steps of Newton."""
        # (1 + a) / 2, in [1/2, 1], where Newton's start is close
        half = (a + self.unit(0) + 1) >> 1
        x = self.constant(NEWTON_START) + self.times(half, self.constant(NEWTON_SLOPE))
        for _ in range(NEWTON_STEPS):
            # x + x * (1 - half * x); a product of two numbers with two integer bits has four, the shift returns to two
            x = x + self.shifted(self.times(x, self.unit(2) - self.times(half, x)), 2)
        return x

    def reciprocal_of_one_plus(self, a: Tensor) -> Tensor:
        """Return 1 / (1 + a), 0 <= a <= 1, without integer bits."""
        # two integer bits less are a shift by 2, and the half of 2 / (1 + a) takes one back
        return self.shifted(self._reciprocal(a), 1)

    def logistic(self, a: Tensor, integer_bits: int) -> Tensor:
        """Return 1 / (1 + exp(-a)) without integer bits."""
        positive = self.reciprocal_of_one_plus(self.exp_of_negative(-a.abs(), integer_bits))
        # logistic(-a) = 1 - logistic(a); at 0 the result is exactly 1/2
        result = torch.where(a > 0, positive, self.unit(0) - positive)
        return torch.where(a == 0, self.unit(0, -1), result)

    def tanh(self, a: Tensor, integer_bits: int) -> Tensor:
        """Return the hyperbolic tangent of a, without integer bits."""
        # tanh(a) = 2 / (1 + exp(-2a)) - 1; one integer bit more reads the number as 2a
        decay = self.exp_of_negative(-a.abs(), integer_bits + 1)
        result = self.shifted(self._reciprocal(decay) - self.unit(2), 2)
        return torch.where(a < 0, -result, torch.where(a == 0, 0, result))


def divide_by_power(x: Tensor, places: Tensor) -> Tensor:
    """Return x * 2**-places, ties away from zero; int64."""
    # half a unit of the result; 0 for no places
    half = (torch.ones_like(places) << places) >> 1
    return torch.where(x < 0, -((half - x) >> places), (x + half) >> places)
