"""Error-free pairs of float64 round as rationals do: at ties, next to ties and elsewhere."""

# ruff: noqa: TID251 - thousands of numbers from a seeded PCG64; a failure names its mode
from __future__ import annotations

from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from quantizer.conformance.bounds.pairs import Pair, of_floats, product, product_over, quotient, rounded, total
from quantizer.conformance.bounds.rounding import code_interval, rational_codes
from quantizer.core.rounding_modes import RoundingMode

MODES = get_args(RoundingMode)
COUNT = 400


def _near_ties(seed: int) -> NDArray[np.float64]:
    """Return halves and whole numbers of many sizes and both signs, exact and one float64 step away."""
    draw = np.random.Generator(np.random.PCG64(seed))
    sizes = 2.0 ** draw.integers(-3, 45, COUNT)
    base = np.rint(draw.uniform(-1, 1, COUNT) * sizes) / 2
    return np.concatenate([base, np.nextafter(base, np.inf), np.nextafter(base, -np.inf), [0.0, -0.0, 1e-300, -1e-300]])


def _agree(pair: Pair, share: float = 0.9) -> None:
    """Assert that every mode rounds each pair, with and without an added integer, as it rounds the rational."""
    known = np.flatnonzero(np.abs(pair.nearest) < 2.0**51)
    assert known.size >= share * pair.nearest.size
    held = Pair(pair.nearest[known], pair.left[known], pair.rational)
    for mode in MODES:
        for before in (0, -3, 128):
            low, high = rounded(held, np.full(known.size, before), mode)
            wanted = [rational_codes(pair((int(place),)) + before, mode) for place in known]
            assert list(zip(low.tolist(), high.tolist(), strict=True)) == wanted, (mode, before)


def test_floats_round_as_rationals() -> None:
    """Numbers that are float64 have no remainder."""
    _agree(of_floats(_near_ties(1)))


@pytest.mark.parametrize("seed", range(4))
def test_products_and_quotients_round_as_rationals(seed: int) -> None:
    """The sign of what float64 loses decides where the product or quotient itself looks like a tie."""
    draw = np.random.Generator(np.random.PCG64(seed))
    near = _near_ties(seed)[: 3 * COUNT]
    by = np.where(
        draw.random(near.size) < 0.5, draw.uniform(0.1, 9, near.size), draw.uniform(0.1, 9, near.size).astype("f4")
    )
    numbers = near / by
    _agree(product(numbers, by, 0, lambda i: Fraction(float(numbers[i])) * Fraction(float(by[i]))))
    exponents = draw.integers(-20, 5, near.size)
    _agree(
        product(
            numbers,
            by,
            exponents,
            lambda i: Fraction(float(numbers[i])) * Fraction(float(by[i])) * Fraction(2) ** int(exponents[i]),
        )
    )
    numbers = near * by
    _agree(quotient(numbers, -by, lambda i: Fraction(float(numbers[i])) / Fraction(float(-by[i]))))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("divisor", [0.375, float(np.float32(0.3)), -0.7])
def test_quotients_of_products_round_as_rationals(divisor: float, tied: bool) -> None:  # noqa: FBT001
    """Sums times a ratio of scales: at ties, one float64 step beside them, or near them by rounding alone."""
    draw = np.random.Generator(np.random.PCG64(7))
    near = _near_ties(7)[::4]
    by = draw.uniform(1e-3, 2, near.size).astype("f4").astype("f8") * draw.uniform(1e-3, 2, near.size).astype("f4")
    # the ratio of a tie is a whole number or its half, so that the sum is a tie itself
    by, numbers = (np.full(near.size, divisor), near) if tied else (by, near * divisor / by)
    exponents = draw.integers(-1, 2, near.size)

    def exact(i: tuple[int, ...]) -> Fraction:
        return (
            Fraction(float(numbers[i])) * Fraction(float(by[i])) / Fraction(divisor) * Fraction(2) ** int(exponents[i])
        )

    _agree(product_over(numbers, by, divisor, exponents, exact))


@pytest.mark.parametrize("seed", range(4))
def test_sums_round_as_rationals(seed: int) -> None:
    """Sums of products that cancel, land on a tie, or miss it by what float64 loses."""
    draw = np.random.Generator(np.random.PCG64(seed))
    factors = [float(np.float32(draw.uniform(0.001, 3))), 2.0 ** int(draw.integers(-9, 9)), float(draw.uniform(0.1, 3))]
    parts = [draw.integers(-(2**20), 2**20, COUNT).astype(np.float64) for _ in factors]
    parts[0][::3] = 0.0
    parts[2][::2] = 0.0

    def exact(index: tuple[int, ...]) -> Fraction:
        return sum(
            (int(part[index]) * Fraction(factor) for part, factor in zip(parts, factors, strict=True)), Fraction(0)
        )

    _agree(total(list(zip(parts, factors, strict=True)), exact), 0.5)


def test_numbers_without_an_exact_pair_are_decided_in_rationals() -> None:
    """Integers beyond float64, products that overflow, and numbers that are not finite have no pair."""
    wide = np.array([2**60 + 1, 3, 0])
    pair = product(wide, 0.5, -59, lambda i: Fraction(int(wide[i]), 2**60))
    assert np.isnan(pair.nearest).tolist() == [True, False, False]
    value = wide.astype(np.float64) * 2.0**-60
    low, high = code_interval(value, qmin=-8, qmax=7, rounding="up", exact=pair)
    assert (low.tolist(), high.tolist()) == ([2, 1, 0], [2, 1, 0])
    assert np.isnan(product(np.array([1e300]), 1e300, 0, pair.rational).nearest).all()
    assert np.isnan(quotient(np.array([1.0]), 0.0, pair.rational).nearest).all()
    assert np.isnan(product_over(np.array([1.0, 1e300]), 1e300, 3.0, 0, pair.rational).nearest).tolist() == [True, True]
    assert np.isnan(product_over(np.array([1.0]), 1.0, 0.0, 0, pair.rational).nearest).all()


def test_activation_limits_keep_exact_pairs_within_them() -> None:
    """A number below 0 becomes 0 without a remainder; one near an upper limit is left to rationals."""
    values = np.array([-0.5, 0.5, 2.5, 5.9999999999999])
    clipped = (
        of_floats(values)
        .at_least_zero(lambda i: max(Fraction(float(values[i])), Fraction(0)))
        .below(6.0, lambda _: Fraction(6))
    )
    assert clipped.nearest[:3].tolist() == [0.0, 0.5, 2.5]
    assert np.isnan(clipped.nearest[3])
