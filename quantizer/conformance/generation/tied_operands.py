"""Pairs of operands for the data set `ties`: solved quotients, and products beyond float32's precision."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.hashing import integers, key
from quantizer.conformance.generation.ranges import activation_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.shapes import variables

Array = NDArray[Any]


MOST_DIVISORS = 1 << 12
"""The number of divisors that are searched for numbers without an exact reciprocal."""
FLOAT32_BITS = 24
"""The number of bits of the mantissa of float32."""


def is_quotient(target: Target) -> bool:
    """Return whether the operator divides one activation by another."""
    return target.spec.error_model.kind == "poles" and len(target.spec.activations) == 2


def solved_quotient(target: Target, case: Case) -> dict[str, Array]:
    """Return dividends and divisors whose quotients are odd multiples of half a code; some dividends differ by one.

    Three of four divisors are, up to a power of two, numbers whose product with their rounded reciprocal is not 1 (in
    float32 or in float64). Empty if the output has no range yet, or if the codes leave no room.
    """
    a, b = target.spec.activations
    if "y" not in case.ranges or np.broadcast_shapes(case.shapes[a], case.shapes[b]) != tuple(case.shapes[a]):
        return {}
    seed = case.data.seed
    known = {name: activation_of(target, case, name) for name in (a, b)}
    reach = {n: min(p.qmax - int(p.zero_point), int(p.zero_point) - p.qmin) for n, p in known.items()}
    scales = {name: float(params.scale) for name, params in known.items()}
    # binary places of half an output step in units of the quotient's step: the larger operand gets the power of two
    places = round(math.log2(float(activation_of(target, case, "y").scale) * scales[b] / scales[a])) - 1
    above, below = 1 << max(places, 0), 1 << max(-places, 0)
    most = min(reach[a] // above, reach[b] // below)
    if most < 1:
        return {}
    # any divisor, for places where no inexact one is taken
    every = 1 + integers(seed, b, case.shapes[b], 0, most - 1)
    inexact = _inexact_divisors(most, (np.float32, np.float64)[seed % 2])
    listed = inexact[integers(seed, f"{b}.inexact", case.shapes[b], 0, inexact.size - 1)] if inexact.size else every
    factor = np.where(integers(seed, f"{b}.listed", case.shapes[b], 0, 3) > 0, listed, every)
    factor *= 2 * integers(seed, f"{b}.sign", case.shapes[b], 0, 1) - 1
    times = np.broadcast_to(factor, case.shapes[a])
    # the number of odd factors of either sign with which the dividend still has a code
    room = (reach[a] // above // np.abs(times) + 1) // 2
    odd = 2 * (integers(seed, a, case.shapes[a], 0, (1 << 30) - 1) % (2 * room) - room) + 1
    beside = integers(seed, f"{a}.beside", case.shapes[a], -4, 4)
    top = np.clip(odd * times * above + np.where(np.abs(beside) == 4, beside // 4, 0), -reach[a], reach[a])
    return {a: top * scales[a], b: factor * below * scales[b]}


@functools.cache
def _inexact_divisors(most: int, kind: type[np.floating[Any]]) -> Array:
    """Return the numbers n up to *most* for which (k * n) * fl(1 / n) is not k, for k = 1, 3 or 5."""
    numbers = np.arange(1, min(most, MOST_DIVISORS) + 1)
    own = numbers.astype(kind)
    missed = [own * kind(odd) * (kind(1) / own) != kind(odd) for odd in (1, 3, 5)]
    return numbers[np.any(missed, axis=0)]


def is_wide_product(target: Target) -> bool:
    """Return whether sums of products of two activations leave the 24 bits of float32."""
    spec = target.spec
    crossed = spec.error_model.kind == "bilinear" and len(spec.activations) == 2
    return crossed and target.scheme.activation.bits > FLOAT32_BITS // 2


def solved_product(target: Target, case: Case, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return operands whose first product lies one unit away from a tie, beyond float32's precision.

    The next product along b is itself a tie. The first code of a is large and odd, so that a code of b exists for any
    remainder modulo the output's step. If products are added, the other codes in the row of a are zero, else they equal
    the first. Without the output's range, both operands are as large as possible.
    """
    (a, b), seed = target.spec.activations, case.data.seed
    scales = [float(activation_of(target, case, name).scale) for name in (a, b)]
    reach = activation_of(target, case, b).qmax
    # one of the 64 largest odd codes
    odd = (reach - 1) // 2 * 2 + 1 - 2 * (key(seed, a) % 64)
    codes = [np.array(tensors[name] / scale) for name, scale in zip((a, b), scales, strict=True)]
    if not all(c.size and c.ndim for c in codes):
        return {}
    first, second = (c.reshape(-1) for c in codes)
    terms = target.spec.error_model.terms
    alone = terms is not None and int(terms(variables(target.spec, case.shapes, case.attrs))) == 1
    first[: codes[0].shape[-1]] = odd if alone else 0
    first[0] = odd
    places = 0
    if "y" in case.ranges:
        places = round(math.log2(float(activation_of(target, case, "y").scale) / (scales[0] * scales[1])))
    period = 1 << max(places, 0)
    solved = [reach, reach]
    if 2 <= places <= target.scheme.activation.bits:
        # above the tie or below it, whichever the seed prefers
        sides = (1, -1) if key(seed, b) % 2 else (-1, 1)
        found = [_factor(odd, period // 2 + side, period, reach) for side in sides]
        # preferred: a kernel that loses the unit and rounds the tie to even gives another code
        away = [c for c, side in zip(found, sides, strict=True) if (odd * c // period) % 2 == (side < 0)]
        solved = [(away or found)[0], _factor(odd, period // 2, period, reach)]
    second[: len(solved)] = solved[: second.size]
    return {name: values * scale for name, values, scale in zip((a, b), codes, scales, strict=True)}


def _factor(odd: int, remainder: int, period: int, reach: int) -> int:
    """Return the largest code <= *reach* whose product with *odd* is *remainder* modulo *period*, a power of two."""
    code = pow(odd, -1, period) * remainder % period
    return code + (reach - code) // period * period
