"""Codes of narrow floats in tensors: the nearest code of a real number, and values as whole numbers of units.

A code has sign and magnitude bits, as in `core.formats`, so that neighbouring codes are neighbouring values.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.formats import format_of
from quantizer.core.rounding_modes import RoundingMode

MOST_BITS = 40
"""Kernels add values as int64 if a value in units has at most this many bits."""
# relative; far above the error of a float64 sum of a few products
_NEAR = 2.0**-40


@functools.cache
def units_of(name: str) -> Tensor:
    """Return the values of all codes of format *name* in order, as int64 multiples of its smallest value."""
    form = format_of(name)
    if form.span_bits > MOST_BITS:
        raise GraphError(f"{name}: its values span {form.span_bits} bits; exact sums hold {MOST_BITS}.")
    return torch.tensor([int(value / form.unit) for value in form.values], dtype=torch.int64)


@functools.cache
def _ties(name: str) -> Tensor:
    return torch.tensor(format_of(name).ties, dtype=torch.float64)


@functools.cache
def _values(name: str) -> Tensor:
    return torch.tensor(format_of(name).values, dtype=torch.float64)


def in_units(codes: Tensor, name: str) -> Tensor:
    """Return the values of int64 *codes* of format *name* in its units; GraphError for a code outside the format."""
    table, places = units_of(name), codes.to(torch.int64) - format_of(name).first
    if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < table.numel()):
        raise GraphError(f"codes of {name}: must lie in [{format_of(name).first}, {format_of(name).last}].")
    return table[places]


def nearest(values: Tensor, name: str, rounding: RoundingMode = "half_even") -> Tensor:
    """Return the int64 codes of format *name* nearest to float64 *values*, rounded by *rounding*, saturated.

    half_even: ties to the even code, which has the even mantissa. NaN gives the code of 0. GraphError for stochastic
    rounding.
    """
    # contiguous, because searchsorted copies anything else and warns
    numbers = values.to(torch.float64).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).contiguous()
    first, ties = format_of(name).first, _ties(name)
    if rounding in ("up", "down", "toward_zero"):
        return _directed(numbers, name, rounding)
    # the number of ties below a value is its place; a value on a tie gets the lower of both codes here
    places = torch.searchsorted(ties, numbers)
    # a number above the last tie is compared with that tie, which it does not equal
    at = places.clamp_max(ties.numel() - 1)
    return places + first + ((ties[at] == numbers) & _goes_up(places + first, numbers, rounding)).to(torch.int64)


def _directed(numbers: Tensor, name: str, rounding: RoundingMode) -> Tensor:
    values, first = _values(name), format_of(name).first
    above = torch.searchsorted(values, numbers).clamp_max(values.numel() - 1)
    below = (torch.searchsorted(values, numbers, right=True) - 1).clamp_min(0)
    if rounding == "toward_zero":
        return torch.where(numbers < 0, above, below) + first
    return (above if rounding == "up" else below) + first


def _goes_up(codes: Tensor, numbers: Tensor, rounding: RoundingMode) -> Tensor:
    """Return whether a tie between *codes* and the next codes rounds up to the next code."""
    match rounding:
        case "half_even":
            return codes % 2 != 0
        case "half_up" | "half_down":
            return torch.full_like(codes, rounding == "half_up", dtype=torch.bool)
        case "half_away":
            return numbers > 0
        case "half_toward_zero":
            return numbers < 0
        case _:
            raise GraphError(f"rounding {rounding}: a number has no one code. Use a mode that is not random.")


def exact_nearest(
    terms: list[tuple[Tensor, Tensor]], divisor: float, shape: torch.Size, name: str, rounding: RoundingMode
) -> Tensor:
    """Return the rounded codes of the real `sum(acc * factor) / divisor`; rationals decide where float64 cannot."""
    total, size = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for acc, factor in terms:
        part = acc.to(torch.float64) * (factor / divisor)
        total, size = total + part, size + part.abs()
    codes, directed = nearest(total, name, rounding), rounding in ("up", "down", "toward_zero")
    # the breakpoints on both sides of the float64 sum: `after` is the first one that is not below it
    breaks = _values(name) if directed else _ties(name)
    after = torch.searchsorted(breaks, total.contiguous())
    sides = [breaks[(after + move).clamp(0, breaks.numel() - 1)] for move in (-1, 0)]
    distance = torch.minimum((total - sides[0]).abs(), (total - sides[1]).abs())
    near = (distance <= size * _NEAR).flatten().nonzero().flatten().tolist()
    flat = [part.expand(shape).flatten()[near].tolist() for pair in terms for part in pair]
    decided = codes.flatten()
    # data has few distinct terms, and rationals are slow
    known: dict[tuple[float, ...], int] = {}
    for place, numbers in zip(near, zip(*flat, strict=True), strict=True):
        if numbers not in known:
            products = (
                Fraction(acc) * Fraction(factor) for acc, factor in zip(numbers[::2], numbers[1::2], strict=True)
            )
            known[numbers] = format_of(name).encode(sum(products, Fraction(0)) / Fraction(divisor), rounding)
        decided[place] = known[numbers]
    return decided.reshape(shape)
