"""Codes of narrow floats in tensors: the nearest code of a real number, and the values of codes as whole numbers of units.

A code is as `core.formats` has it: sign and magnitude bits, so that neighbouring codes are neighbouring values.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.formats import format_of
from quantizer.core.platforms import RoundingMode

MOST_BITS = 40
"""Bits of a value in units, up to which kernels add values as int64."""
_NEAR = 2.0**-40


@functools.cache
def units_of(name: str) -> Tensor:
    """Return the values of all codes of format *name*, from the first to the last, as int64 multiples of its smallest value."""
    form = format_of(name)
    if form.span_bits > MOST_BITS:
        raise GraphError(f"{name}: its values span {form.span_bits} bits; exact sums hold {MOST_BITS}.")
    return torch.tensor([int(value / form.unit) for value in form.values], dtype=torch.int64)


@functools.cache
def _ties(name: str) -> Tensor:
    return torch.tensor(format_of(name).ties, dtype=torch.float64)


def in_units(codes: Tensor, name: str) -> Tensor:
    """Return the values of int64 *codes* of format *name* in its units; GraphError for a code that it does not have."""
    table, places = units_of(name), codes.to(torch.int64) - format_of(name).first
    if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < table.numel()):
        raise GraphError(f"codes of {name}: must lie in [{format_of(name).first}, {format_of(name).last}].")
    return table[places]


def nearest(values: Tensor, name: str, rounding: RoundingMode = "half_even") -> Tensor:
    """Return the int64 codes of the values of format *name* next to float64 *values*; ties to the even code, ends saturate.

    NaN gives the code of 0. GraphError for another rounding.
    """
    if rounding != "half_even":
        raise GraphError(f"rounding {rounding}: {name} is rounded half to even here.")
    ties, first = _ties(name), format_of(name).first
    numbers = values.to(torch.float64).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).contiguous()
    codes = torch.searchsorted(ties, numbers) + first
    at = (codes - first).clamp_max(ties.numel() - 1)
    return codes + ((ties[at] == numbers) & (codes % 2 != 0)).to(torch.int64)


def exact_nearest(
    terms: list[tuple[Tensor, Tensor]], divisor: float, shape: torch.Size, name: str, rounding: RoundingMode
) -> Tensor:
    """Return the codes next to the real number `sum(acc * factor) / divisor`, in rationals where float64 does not tell the side."""
    total, size = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for acc, factor in terms:
        part = acc.to(torch.float64) * (factor / divisor)
        total, size = total + part, size + part.abs()
    codes, ties, first = nearest(total, name, rounding), _ties(name), format_of(name).first
    below = (codes - first - 1).clamp_min(0)
    above = (codes - first).clamp_max(ties.numel() - 1)
    distance = torch.minimum((total - ties[below]).abs(), (total - ties[above]).abs())
    near = (distance <= size * _NEAR).flatten().nonzero().flatten().tolist()
    flat = [(acc.expand(shape).flatten(), factor.expand(shape).flatten()) for acc, factor in terms]
    decided = codes.flatten()
    for place in near:
        value = sum((int(a[place]) * Fraction(float(f[place])) for a, f in flat), Fraction(0)) / Fraction(divisor)
        decided[place] = _decided(value, int(decided[place]), name)
    return decided.reshape(shape)


def _decided(value: Fraction, code: int, name: str) -> int:
    """Return the code next to *value*, which is *code* or one of its neighbours."""
    form = format_of(name)
    low = max(form.first, code - 1)
    while low < form.last:
        tie = Fraction(form.ties[low - form.first])
        if value < tie or (value == tie and low % 2 == 0):
            return low
        low += 1
    return low
