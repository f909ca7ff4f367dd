"""Square roots and inverse square roots of integers, correctly floored or from a table."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.qparams import Table
from quantizer.numerics.quotient import TIE_BAND
from quantizer.numerics.rounding import divide, round_scalar, round_tensor

ROOT_BITS = 32
"""Significant bits of a square root."""
QUOTIENT_BITS = 30
"""Binary places of a quotient by a root."""
TABLE_BITS = 6
"""Binary places of the numbers in [1, 4] that index the inverse roots."""
TABLE_UNIT = 15
"""Binary places of an entry of the table, and of the inverse roots that are computed from it."""
MANTISSA_BITS = 22
"""Binary places of the number that is looked up."""
_CHUNK = 30  # a remainder below 2**32, shifted by 30 places, still fits int64


def square_root(squares: Tensor, offset: Fraction) -> tuple[Tensor, Tensor]:
    """Return int64 (mantissa, exponent) with `sqrt(squares + offset) = mantissa * 2**-exponent`, floored to 32 bits.

    squares: int64, not negative; offset: added exactly. The mantissa of 0 is 0; every other mantissa is in [2**31,
    2**32).
    """
    mantissas, exponents = [], []
    top, bottom = offset.numerator, offset.denominator
    for square in squares.flatten().tolist():
        numerator = square * bottom + top
        # a root has half the bits of its square: these places give 32 bits, or one more
        places = ROOT_BITS - (numerator.bit_length() - bottom.bit_length()) // 2
        root = _scaled_root(numerator, bottom, places)
        if root >= 1 << ROOT_BITS:  # the bit lengths of both operands give that of the quotient up to one bit
            places -= 1
            root >>= 1
        mantissas.append(root)
        exponents.append(places if root else 0)
    found = [torch.tensor(v, dtype=torch.int64).reshape(squares.shape) for v in (mantissas, exponents)]
    return found[0], found[1]


def _scaled_root(numerator: int, denominator: int, places: int) -> int:
    """Return `floor(sqrt(numerator / denominator) * 2**places)`."""
    if places >= 0:
        return math.isqrt((numerator << 2 * places) // denominator)
    return math.isqrt(numerator // (denominator << -2 * places))


def rounded_root(squares: Tensor, ratio: Fraction, rounding: RoundingMode) -> Tensor:
    """Return `sqrt(squares) * ratio` rounded once, as int64; squares: int64, not negative.

    Elements that float64 cannot decide are decided in integers: an irrational root is never exactly a half.
    """
    value = squares.double().sqrt() * float(ratio)
    result = round_tensor(value, rounding).to(torch.int64)
    band, twice = TIE_BAND * value.clamp(min=1.0), value * 2
    near = (twice - twice.round()).abs() <= 2 * band
    # many elements of a large tensor have the same square
    known, places = squares[near].unique(return_inverse=True)
    result[near] = torch.tensor([_decided(one, ratio, rounding) for one in known.tolist()], dtype=torch.int64)[places]
    return result


def _decided(square: int, ratio: Fraction, rounding: RoundingMode) -> int:
    """Return `sqrt(square) * ratio`, rounded in integers."""
    wanted = 4 * square * ratio**2
    halves = math.isqrt(wanted.numerator // wanted.denominator)
    # A root that is not a half lies between two halves. All numbers there round alike, so the middle replaces it.
    beside = Fraction(halves**2 != wanted, 2)
    return round_scalar((halves + beside) / 2, rounding)


def quotient(numerator: Tensor, mantissa: Tensor, exponent: Tensor, rounding: RoundingMode) -> Tensor:
    """Return int64 `numerator / (mantissa * 2**-exponent)` in units of 2**-30, rounded once; 0 where the mantissa is 0.

    numerator: int64; mantissa: below 2**32, as `square_root` gives it. Long division, 30 bits at a time.
    """
    numerator, divisor = torch.broadcast_tensors(numerator, mantissa.clamp(min=1))
    places = (exponent + QUOTIENT_BITS).expand(numerator.shape)
    result = torch.div(numerator, divisor, rounding_mode="floor")
    rest = numerator - result * divisor
    left = places.clamp(min=0)
    while bool((left > 0).any()):
        step = left.clamp(max=_CHUNK)
        grown = rest << step
        digits = torch.div(grown, divisor, rounding_mode="floor")
        result, rest, left = (result << step) + digits, grown - digits * divisor, left - step
    # rounding needs only the last bit and the sign of the floor
    last = (result & 1) - 2 * (result < 0)
    rounded = divide(last * divisor + rest, divisor, rounding) + (result - last)
    return torch.where((mantissa > 0) & (places >= 0), rounded, 0)


def inverse_root_table() -> Table:
    """Return the table 2**15 / sqrt(m) for m = 1, 1 + 1/64, ... 4, rounded, the first entry saturated to int16."""
    count = 3 * (1 << TABLE_BITS) + 1
    points = 1.0 + torch.arange(count, dtype=torch.float64) * 2.0**-TABLE_BITS
    entries = torch.round(2.0**TABLE_UNIT / torch.sqrt(points)).to(torch.int64).clamp(max=(1 << TABLE_UNIT) - 1)
    return Table(entries, first=1 << TABLE_BITS, step=1, unit=2.0**-TABLE_UNIT, bits=TABLE_UNIT + 1)


def table_inverse_root(values: Tensor, table: Table) -> Tensor:
    """Return `2**31 / sqrt(values)` by the table: values are m * 4**k with m in [1, 4); the chord at m is shifted by k.

    values: int64 in [0, 2**31); 0 counts as 1. m has 22 binary places, of which the chord uses 21; all floors.
    """
    values = values.clamp(min=1)
    # An even power of two is taken out, because its root is a shift.
    halves = (torch.frexp(values.double()).exponent.to(torch.int64) - 1) >> 1
    grown = values << (MANTISSA_BITS - 2 * halves).clamp(min=0)
    mantissa = grown >> (2 * halves - MANTISSA_BITS).clamp(min=0)
    place = (mantissa >> (MANTISSA_BITS - TABLE_BITS)) - table.first
    rest = (mantissa >> 1) & ((1 << TABLE_UNIT) - 1)
    low, high = table.entries[place], table.entries[place + 1]
    return ((low << 16) - ((low - high) * rest << 1)) >> halves
