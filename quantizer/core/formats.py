"""Formats list the values of a number in rising order. A code is the position of a value in this list.

`code` counts from the value 0. For integers a code is its value. For signed floats it is the sign and the magnitude
bits of the stored number. In every format the next code is the next value. So an interval of codes means
the same for int8 and float8. NaN and the infinities are not values. They have codes beyond the last one, which are
never compared by size.

Sources: IEEE 754; OCP 8-bit floating point (OFP8) and microscaling formats (MX) 1.0, as in ONNX and ml_dtypes.
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode

Overflow = Literal["saturate", "special"]
"""What a number beyond the last value becomes: the last value, or infinity (NaN in formats without infinity)."""


@dataclass(frozen=True)
class FloatLayout:
    """A binary float: value = 2**(e - bias) * 1.m, subnormals below 2**(1 - bias)."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_infinity: bool
    has_nan: bool

    @property
    def last(self) -> int:
        """The magnitude bits of the largest value: the largest pattern that is neither infinity nor NaN."""
        # with infinity the highest exponent holds no values; else NaN has only the last pattern
        bits = 1 << (self.exponent_bits + self.mantissa_bits)
        return bits - 1 - (1 << self.mantissa_bits if self.has_infinity else int(self.has_nan))

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return self.magnitude(self.last)

    def magnitude(self, bits: int) -> float:
        """Return the value of magnitude *bits*."""
        exponent, mantissa = divmod(bits, 1 << self.mantissa_bits)
        # the hidden bit; subnormals (exponent 0) have none, and the scale of exponent 1
        whole = mantissa + (1 << self.mantissa_bits if exponent else 0)
        return math.ldexp(whole, max(exponent, 1) - self.bias - self.mantissa_bits)


FLOAT_LAYOUTS: dict[str, FloatLayout] = {
    "float32": FloatLayout(8, 23, 127, has_infinity=True, has_nan=True),
    "float16": FloatLayout(5, 10, 15, has_infinity=True, has_nan=True),
    "bfloat16": FloatLayout(8, 7, 127, has_infinity=True, has_nan=True),
    "float8_e5m2": FloatLayout(5, 2, 15, has_infinity=True, has_nan=True),
    "float8_e4m3fn": FloatLayout(4, 3, 7, has_infinity=False, has_nan=True),
    "float6_e2m3fn": FloatLayout(2, 3, 1, has_infinity=False, has_nan=False),
    "float6_e3m2fn": FloatLayout(3, 2, 3, has_infinity=False, has_nan=False),
    "float4_e2m1fn": FloatLayout(2, 1, 1, has_infinity=False, has_nan=False),
}
"""Format -> its layout."""
EXPONENTS = "float8_e8m0fnu"
"""The format of powers of two: no sign, no zero, no infinity."""
TABULATED_BITS = 16
"""The largest number of bits for which the values of a format are listed."""


@dataclass(frozen=True)
class Format:
    """A finite set of values in rising order; `first` is the code of the first of them."""

    name: str
    values: tuple[float, ...]
    first: int
    nan: int | None = None
    """Code of NaN, beyond the last code; None if the format has no NaN."""
    infinity: int | None = None
    """Code of infinity, beyond the last code; negative infinity has the negated code."""
    storage_bits: int = 8
    signed: bool = True

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def last(self) -> int:
        """The code of the largest value."""
        return self.first + len(self.values) - 1

    @functools.cached_property
    def unit(self) -> float:
        """The largest power of two up to 1 such that every value is a multiple of it."""
        # denominators of floats are powers of two, so that the largest is the common one
        return 1.0 / max(value.as_integer_ratio()[1] for value in self.values)

    @functools.cached_property
    def span_bits(self) -> int:
        """Bits of the largest magnitude in units."""
        return int(Fraction(max(abs(self.values[0]), abs(self.values[-1]))) / Fraction(self.unit)).bit_length()

    @functools.cached_property
    def ties(self) -> tuple[float, ...]:
        """The number half way between each value and the next one. All are exact in float64."""
        return tuple((low + high) / 2 for low, high in zip(self.values, self.values[1:], strict=False))

    def decode(self, code: int) -> float:
        """Return the value of *code*, which may be NaN or infinite. GraphError for a code beyond the format."""
        if self.first <= code <= self.last:
            return self.values[code - self.first]
        if code == self.nan:
            return math.nan
        if self.infinity is not None and abs(code) == self.infinity:
            return math.copysign(math.inf, code)
        raise GraphError(f"code {code}: {self.name} has codes from {self.first} to {self.last}.")

    def neighbours(self, number: float | Fraction) -> tuple[int, int]:
        """Return the codes of the largest value not above *number* and of the smallest not below it.

        Beyond an end both are the code of that end.
        """
        # a value of the format itself is both
        below = bisect.bisect_right(self.values, number) - 1
        above = bisect.bisect_left(self.values, number)
        top = len(self.values) - 1
        return self.first + min(max(below, 0), top), self.first + min(max(above, 0), top)

    def position(self, number: Fraction) -> Fraction:
        """Return the exact position of *number* among the codes: 2 1/2 is half way between the values of codes 2 and 3.

        Beyond the ends, codes continue at the last distance: overflow begins half a code above `last`.
        """
        index = min(max(bisect.bisect_right(self.values, number) - 1, 0), len(self.values) - 2)
        low, high = Fraction(self.values[index]), Fraction(self.values[index + 1])
        return self.first + index + (number - low) / (high - low)

    def encode(
        self, number: float | Fraction, rounding: RoundingMode = "half_even", overflow: Overflow = "saturate"
    ) -> int:
        """Return the code of *number*, rounded once.

        *rounding* decides ties by codes: half_even gives an even mantissa.

        NaN gives its code; GraphError in a format without NaN. Infinities overflow.
        """
        if isinstance(number, float) and not math.isfinite(number):
            return self._special(number, overflow)
        place = self.position(Fraction(number))
        code = _rounded(place, rounding, negative=number < 0)
        if self.first <= code <= self.last:
            return code
        return self._special(math.copysign(math.inf, code - self.first), overflow)

    def _special(self, number: float, overflow: Overflow) -> int:
        if math.isnan(number):
            if self.nan is None:
                raise GraphError(f"NaN: {self.name} has none. Replace it before it becomes a code.")
            return self.nan
        if overflow == "saturate" or (self.infinity is None and self.nan is None):
            return self.last if number > 0 else self.first
        if self.infinity is not None:
            return self.infinity if number > 0 else -self.infinity
        return self.nan if self.nan is not None else self.last


def _rounded(place: Fraction, rounding: RoundingMode, *, negative: bool) -> int:
    """Return the whole number next to *place*."""
    below = math.floor(place)
    part = place - below
    if rounding == "stochastic":
        raise GraphError("rounding stochastic: a number has no single right code. Use neighbours.")
    if rounding in ("up", "down", "toward_zero"):
        # toward zero is up for a negative number
        rises = rounding == "up" or (rounding == "toward_zero" and negative)
        return below + int(rises and part > 0)
    if part != Fraction(1, 2):
        return below + int(part > Fraction(1, 2))
    rises = {
        "half_even": below % 2 == 1,
        "half_up": True,
        "half_down": False,
        "half_away": not negative,
        "half_toward_zero": negative,
    }[rounding]
    return below + int(rises)


@functools.cache
def format_of(name: str) -> Format:
    """Return the format called *name*: `int4`, `uint8`, `float8_e4m3fn`, ...; GraphError for an unknown one."""
    layout = FLOAT_LAYOUTS.get(name)
    if name == EXPONENTS:
        return Format(name, tuple(math.ldexp(1.0, e - 127) for e in range(255)), 0, nan=255, signed=False)
    if layout is not None and layout.exponent_bits + layout.mantissa_bits < TABULATED_BITS:
        positive = [layout.magnitude(bits) for bits in range(1, layout.last + 1)]
        infinity = layout.last + 1 if layout.has_infinity else None
        nan = (
            None
            if not layout.has_nan
            else layout.last + 1
            if infinity is None
            # the quiet NaN: infinity with the highest mantissa bit set
            else infinity + (1 << layout.mantissa_bits - 1)
        )
        # one 0: the negative zero has no code of its own
        values = (*(-value for value in reversed(positive)), 0.0, *positive)
        return Format(name, values, -layout.last, nan, infinity, 1 + layout.exponent_bits + layout.mantissa_bits)
    signed = name.startswith("int")
    digits = name.removeprefix("int") if signed else name.removeprefix("uint")
    if digits.isdecimal() and 2 <= int(digits) <= TABULATED_BITS:
        bits = int(digits)
        low = -(1 << (bits - 1)) if signed else 0
        return Format(name, tuple(map(float, range(low, low + (1 << bits)))), low, storage_bits=bits, signed=signed)
    raise GraphError(
        f"format {name!r}: its values are not listed. Listed are integers of 2 to 16 bits, {', '.join(LISTED)}."
    )


LISTED = (*(name for name in FLOAT_LAYOUTS if name != "float32"), EXPONENTS)
"""Formats of floating point whose values are listed."""
