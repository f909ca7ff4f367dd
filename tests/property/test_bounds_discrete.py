"""Bounds of discontinuous operators: choices, comparisons, one-hot rows, steps; and elements too wide to judge."""

# ruff: noqa: TID251 - millions of elements from a seeded PCG64; every failure names its model and element
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quantizer.conformance import bounds
from quantizer.conformance.bounds import UNDECIDED, Interval

Array = Any
CASES = 20_000


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _inputs(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return values with many ties, and radii from none to larger than the distances."""
    x = np.where(rng.random(shape) < 0.5, np.rint(rng.normal(size=shape) * 2), rng.normal(size=shape))
    lead = (shape[0],) + (1,) * (len(shape) - 1)
    return x, rng.choice([0.0, 1e-9, 0.25, 1.0, 4.0], size=lead) * rng.choice([rng.random(shape), np.ones(shape)])


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_right_choice_is_always_allowed(k: int, ordered: bool) -> None:
    rng = _generator(k)
    x, dx = _inputs(rng, (CASES, 7))
    for direction in (rng.uniform(-1, 1, x.shape), rng.choice([-1.0, 1.0], x.shape), np.sign(-x), np.zeros(x.shape)):
        moved = np.longdouble(x) + np.longdouble(dx) * direction
        chosen = np.argsort(-moved, axis=1, kind="stable")[:, :k]
        allowed, actual = bounds.regret(x, dx, chosen, 1, k, ordered=ordered)
        assert (actual >= allowed).all()


def test_regret_bound_is_at_most_twice_the_largest_radius() -> None:
    rng = _generator(1)
    x, dx = _inputs(rng, (CASES, 7))
    chosen = rng.permuted(np.broadcast_to(np.arange(7), x.shape), axis=1)[:, :3]
    allowed, actual = bounds.regret(x, dx, chosen, 1, 3)
    plain = -np.sort(-x, axis=1)[:, 2:3] - 2 * dx.max(axis=1, keepdims=True)
    assert actual.shape == allowed.shape == (CASES, 3)
    assert (allowed >= plain - 2.0**-40).all()


def test_regret_rejects_a_choice_outside_the_bounds() -> None:
    x, dx = np.array([4.0, 3.0, 2.0, 1.0]), np.full(4, 0.5)
    for choice, right in ((0, True), (1, True), (2, False), (3, False)):
        allowed, actual = bounds.regret(x, dx, np.array([choice]), 0)
        assert bool((actual >= allowed)[0]) is right
    allowed, actual = bounds.regret(x, dx, np.array([1, 2]), 0, 2)
    assert (actual >= allowed).all()
    allowed, actual = bounds.regret(x, dx * 0, np.array([1, 0]), 0, 2, ordered=True)
    assert (actual >= allowed).tolist() == [False, True]


def test_comparisons_are_decided_only_if_every_input_agrees() -> None:
    a = Interval.around(np.array([0.0, 0.0, 0.0, 1.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]))
    b = Interval.exactly(np.array([2.0, 1.0, 0.0, 1.0, 2.0, 1.0]))
    expected = {
        "less": [1, UNDECIDED, UNDECIDED, 0, 1, 0],
        "less_equal": [1, 1, UNDECIDED, 1, 1, 0],
        "greater": [0, 0, UNDECIDED, 0, 0, 1],
        "greater_equal": [0, UNDECIDED, UNDECIDED, 1, 0, 1],
        "equal": [0, UNDECIDED, UNDECIDED, 1, 0, 0],
        "not_equal": [1, UNDECIDED, UNDECIDED, 0, 1, 1],
    }
    for op, truth in expected.items():
        found = bounds.compare(op, a, b)  # type: ignore[arg-type]
        assert found.tolist() == truth, op
        mask = bounds.truth_interval(found)
        assert mask.lo.tolist() == [float(t == 1) for t in truth]
        assert mask.hi.tolist() == [float(t != 0) for t in truth]


def test_where_returns_the_hull_of_both_branches_if_undecided() -> None:
    truth = np.array([1, 0, UNDECIDED], dtype=np.int8)
    chosen = bounds.where(truth, Interval.exactly(np.full(3, 5.0)), Interval.around(np.zeros(3), 1.0))
    assert chosen.lo.tolist() == [5.0, -1.0, -1.0]
    assert chosen.hi.tolist() == [5.0, 1.0, 5.0]


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_bounds_contain_rows_of_every_possible_index(axis: int) -> None:
    rng = _generator(3)
    index, spare = rng.integers(-1, 6, size=(CASES, 2)) * 1.0, rng.integers(0, 3, size=(CASES, 2)) * 1.0
    enclosure = bounds.one_hot(Interval.around(index, spare), 5, axis=axis, on=3.0, off=-1.0)
    for part in (-1.0, -0.5, 0.0, 0.5, 1.0):
        moved = index + np.trunc(spare * part)
        places = np.arange(5).reshape([5 if i == axis % 3 else 1 for i in range(3)])
        assert enclosure.contains(np.where(np.expand_dims(moved, axis) == places, 3.0, -1.0)).all()


def test_one_hot_is_decided_where_the_index_is() -> None:
    row = bounds.one_hot(Interval(np.array([1.0, 1.0]), np.array([1.0, 2.0])), 4)
    assert row.lo.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    assert row.hi.tolist() == [[0, 1, 0, 0], [0, 1, 1, 0]]


def test_step_functions_of_exact_inputs_are_one_value() -> None:
    x = np.array([-2.0, -0.5, 0.0, 0.5, 2.0, 3.0])
    for f in (np.floor, np.ceil, np.rint, np.sign):
        found = Interval.around(x, np.zeros(6)).moved(f)
        assert found.lo.tolist() == found.hi.tolist() == f(x).tolist()
    spread = Interval.around(x, np.full(6, 0.5)).moved(np.floor)
    assert spread.lo.tolist() == [-3, -1, -1, 0, 1, 2]
    assert spread.hi.tolist() == [-2, 0, 0, 1, 2, 3]


def test_remainder_bounds_are_sharp_if_the_quotient_is_constant() -> None:
    x, y = Interval.around(np.array([7.0, 7.0, -7.0, 6.0, 7.0]), np.array([0.25, 2.0, 0.25, 0.0, 0.0])), np.full(5, 3.0)
    y[4] = 0.0
    floor, trunc = (bounds.modulo(x, Interval.exactly(y), truncated=flag) for flag in (False, True))
    sharp = 2.0**-40
    for found, expected in (
        (floor, [(0.75, 1.25), (0, 3), (1.75, 2.25), (0, 0), (-np.inf, np.inf)]),
        (trunc, [(0.75, 1.25), (0, 3), (-1.25, -0.75), (0, 0), (-np.inf, np.inf)]),
    ):
        for lo, hi, (low, high) in zip(found.lo, found.hi, expected, strict=True):
            assert low - sharp <= lo <= low
            assert high <= hi <= high + sharp


def test_an_interval_over_a_quarter_of_the_output_is_vacuous() -> None:
    found = Interval(np.array([0.0, 0.0, 90.0, -np.inf, 200.0]), np.array([25.0, 25.5, 300.0, np.inf, 900.0]))
    assert bounds.vacuous(found, 0.0, 100.0).tolist() == [False, True, False, True, False]


def test_swapped_or_nan_or_float32_interval_ends_are_refused() -> None:
    one = np.ones(1)
    for lo, hi in ((one, -one), (one * np.nan, one)):
        with pytest.raises(ValueError, match="lo must be <= hi"):
            Interval(lo, hi)
    with pytest.raises(ValueError, match="float64"):
        Interval(one, one.astype(np.float32))
    builds: tuple[Callable[[], Interval], ...] = (
        lambda: Interval.around(one, -one),
        lambda: bounds.linear(lambda x: x, lambda x: x, {"x": (one, -one)}),
        lambda: bounds.bilinear(lambda x, w, _: x * w, np.multiply, (one, -one), (one, one * 0)),
        lambda: bounds.resize_linear(one, -one, {0: np.ones((1, 1))}),
    )
    for build in builds:
        with pytest.raises(ValueError, match="radius: must be >= 0"):
            build()


def test_a_sum_that_overflows_is_enclosed_by_the_largest_number_and_infinity() -> None:
    big = Interval.exactly(np.array([1.7e308, -1.7e308]))
    total = big + big
    largest = np.finfo(np.float64).max
    assert total.lo.tolist() == [largest, -np.inf]
    assert total.hi.tolist() == [np.inf, -largest]
