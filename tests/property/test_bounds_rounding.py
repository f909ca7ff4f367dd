"""The codes that one rounding allows: the right one always, another never, for every mode and at every tie."""

# ruff: noqa: TID251 - millions of elements from a seeded PCG64; every failure names its model and element
from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest

from quantizer.conformance.bounds import code_interval, rational_codes
from quantizer.core.rounding_modes import RoundingMode

Array = Any
MODES: tuple[RoundingMode, ...] = get_args(RoundingMode)
CASES = 600
LIMITS = [(-128, 127), (0, 255), (-32768, 32767)]


def right_codes(value: Fraction, mode: RoundingMode) -> tuple[int, int]:
    """Restate the modes by definition: of the two whole numbers around *value*, the one that the mode prefers."""
    around = [math.floor(value), math.ceil(value)]
    if mode == "stochastic":
        return around[0], around[1]
    preferences: dict[str, Any] = {
        "up": lambda n: -n,
        "down": lambda n: n,
        "toward_zero": abs,
        "half_even": lambda n: (abs(n - value), n % 2),
        "half_up": lambda n: (abs(n - value), -n),
        "half_down": lambda n: (abs(n - value), n),
        "half_away": lambda n: (abs(n - value), -abs(n)),
        "half_toward_zero": lambda n: (abs(n - value), abs(n)),
    }
    best = min(around, key=preferences[mode])
    return best, best


def rationals(rng: np.random.Generator, qmin: int, qmax: int) -> list[Fraction]:
    """Return numbers in and around the codes: ties, whole numbers, both but for a hair, and others."""
    span, found = qmax - qmin, []
    for _ in range(CASES):
        whole = int(rng.integers(-span, span + 1))
        kind = int(rng.integers(6))
        denominator = int(rng.choice([2, 2, 3, 4, 10, 255]))
        part = Fraction(int(rng.integers(0, denominator)), denominator) if kind else Fraction(1, 2)
        hair = Fraction(int(rng.choice([-1, 0, 1])), 1 << int(rng.choice([39, 42, 45, 60]))) if kind in (1, 2) else 0
        found.append(whole + (Fraction(int(rng.integers(2)), 2) if kind == 1 else part) + hair)
    return found


def clamp(code: int, limits: tuple[int, int]) -> int:
    return min(max(code, limits[0]), limits[1])


def expected(
    numbers: list[Fraction], zeros: Array, mode: RoundingMode, limits: tuple[int, int], *, first: bool
) -> Array:
    """Return the smallest and largest right code of every number."""
    ends = []
    for value, zero in zip(numbers, zeros.tolist(), strict=True):
        if first:
            ends.append([clamp(code, limits) for code in right_codes(value + zero, mode)])
        else:
            ends.append([clamp(code + zero, limits) for code in right_codes(value, mode)])
    return np.array(ends, dtype=np.int64).T


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_exact_numbers_allow_one_code(mode: RoundingMode, first: bool, limits: tuple[int, int]) -> None:
    rng = np.random.Generator(np.random.PCG64(MODES.index(mode)))
    numbers = rationals(rng, *limits)
    zeros = rng.integers(limits[0], limits[1] + 1, size=CASES)
    low, high = expected(numbers, zeros, mode, limits, first=first)
    # what float64 may lose of a sum of terms: up to its share of t, either way
    magnitude = np.array([float(abs(n)) for n in numbers]) * rng.choice([1.0, 30.0], size=CASES)
    lost = 0.9 * 2.0**-40 * np.maximum(1, magnitude) * rng.choice([-1.0, 0.0, 1.0], size=CASES)
    given: dict[str, Any] = {
        "magnitude": magnitude,
        "zero_point": zeros,
        "qmin": limits[0],
        "qmax": limits[1],
        "rounding": mode,
        "zero_point_first": first,
    }
    v = np.array([float(n) for n in numbers]) + lost
    wide = code_interval(v, **given)
    assert (wide[0] <= low).all()
    assert (wide[1] >= high).all()
    asked: list[int] = []

    def exact(index: tuple[int, ...]) -> Fraction:
        asked.append(index[0])
        return numbers[index[0]]

    sharp = code_interval(v, exact=exact, **given)
    assert (sharp[0] == low).all()
    assert (sharp[1] == high).all()
    assert (wide[0] == low)[[i not in asked for i in range(CASES)]].all()


@pytest.mark.parametrize("mode", MODES)
def test_further_stages_widen_the_code_interval_by_their_error(mode: RoundingMode) -> None:
    rng = np.random.Generator(np.random.PCG64(100 + MODES.index(mode)))
    limits = (-128, 127)
    numbers = rationals(rng, *limits)
    e = rng.choice([0.001, 0.25, 0.5, 1.0, 3.7], size=CASES)
    v = np.array([float(n) for n in numbers])
    low, high = code_interval(v, e_over_s=e, magnitude=np.abs(v), zero_point=3, qmin=-128, qmax=127, rounding=mode)
    for part in (Fraction(-1), Fraction(-1, 3), Fraction(0), Fraction(1)):
        moved = [n + part * Fraction(by) for n, by in zip(numbers, e.tolist(), strict=True)]
        right = expected(moved, np.full(CASES, 3), mode, limits, first=False)
        assert (low <= right[0]).all()
        assert (high >= right[1]).all()
    hair = Fraction(1, 1 << 25)
    for side, found, pick in ((-1, low, min), (1, high, max)):
        ends = [n + side * (Fraction(by) + hair) for n, by in zip(numbers, e.tolist(), strict=True)]
        widest = [pick(right_codes(end, mode)) + 3 for end in ends]
        clamped = np.array([clamp(code, limits) for code in widest])
        assert (found >= clamped).all() if side < 0 else (found <= clamped).all()


def test_a_tie_is_rounded_with_or_without_the_zero_point() -> None:
    v = np.array([-1.5, -0.5, 0.5, 1.5])

    def codes(mode: RoundingMode, first: bool) -> list[int]:
        low, high = code_interval(
            v, zero_point=1, qmin=-8, qmax=7, rounding=mode, zero_point_first=first, exact=lambda i: Fraction(v[i])
        )
        assert (low == high).all()
        return [int(code) for code in low]

    assert codes("half_even", first=False) == [-1, 1, 1, 3]
    assert codes("half_even", first=True) == [0, 0, 2, 2]
    assert codes("half_away", first=False) == [-1, 0, 2, 3]
    assert codes("half_away", first=True) == [-1, 1, 2, 3]
    assert codes("toward_zero", first=False) == [0, 1, 1, 2]
    assert codes("toward_zero", first=True) == [0, 0, 1, 2]
    assert codes("half_up", first=True) == codes("half_up", first=False) == [0, 1, 2, 3]
    assert codes("half_down", first=True) == codes("half_down", first=False) == [-1, 0, 1, 2]


def test_a_tie_with_a_further_stage_allows_two_codes() -> None:
    v = np.array([2.5, 2.5])
    low, high = code_interval(
        v, e_over_s=[0.0, 0.01], qmin=0, qmax=9, rounding="half_even", exact=lambda _: Fraction(5, 2)
    )
    assert (low.tolist(), high.tolist()) == ([2, 2], [2, 3])


@pytest.mark.parametrize("mode", MODES)
def test_numbers_away_from_ties_need_no_rationals(mode: RoundingMode) -> None:
    v: Array = np.arange(-100, 100).reshape(20, 10) + 0.3

    def exact(index: tuple[int, ...]) -> Fraction:
        raise AssertionError(f"{index} is decided by float64")

    low, high = code_interval(v, magnitude=9 * np.abs(v), qmin=-128, qmax=127, rounding=mode, exact=exact)
    assert (high - low == (1 if mode == "stochastic" else 0)).all()


def test_sums_far_beyond_float64_are_decided_in_rationals() -> None:
    v = np.array([3.5, 4.5, 4.49])
    truth = [Fraction(7, 2), Fraction(9, 2) - Fraction(1, 10**9), Fraction(449, 100)]
    wide = code_interval(v, magnitude=1e13, qmin=-128, qmax=127, rounding="half_even")
    assert (wide[1] - wide[0] > 1).all()
    low, high = code_interval(v, magnitude=1e13, qmin=-128, qmax=127, rounding="half_even", exact=lambda i: truth[i[0]])
    assert low.tolist() == high.tolist() == [4, 4, 4]


def test_per_axis_zero_points_and_saturation_broadcast() -> None:
    v: Array = np.array([[1e30, -1e30, 0.2, np.inf], [1e30, -1e30, 0.2, np.nan]])
    zero = np.array([[-3], [5]])
    low, high = code_interval(v, zero_point=zero, qmin=-128, qmax=127, rounding="half_even")
    assert low.tolist() == [[127, -128, -3, -128], [127, -128, 5, -128]]
    assert high.tolist() == [[127, -128, -3, 127], [127, -128, 5, 127]]
    assert low.dtype == high.dtype == np.int64


@pytest.mark.parametrize("mode", MODES)
def test_rational_codes_follow_the_definition(mode: RoundingMode) -> None:
    for numerator in range(-60, 61):
        for denominator in (1, 2, 3, 4, 7):
            value = Fraction(numerator, denominator)
            assert rational_codes(value, mode) == right_codes(value, mode)


def test_a_scalar_is_one_element() -> None:
    low, high = code_interval(np.array(2.5), qmin=0, qmax=9, rounding="half_even", exact=lambda i: Fraction(5, 2))
    assert low.shape == high.shape == ()
    assert (int(low), int(high)) == (2, 2)
