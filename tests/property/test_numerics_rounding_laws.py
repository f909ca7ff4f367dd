"""Laws of rounding for any float64 and int64, against exact integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.rounding import divide, round_scalar, round_tensor, shift_right

MODES = get_args(RoundingMode)
near_ties = st.builds(
    lambda base, steps: base + 0.5 + steps * math.ulp(base + 0.5), st.integers(-(2**40), 2**40), st.integers(-3, 3)
)
numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), near_ties)


@given(x=numbers, seed=st.integers(0, 2**64), mode=st.sampled_from(MODES))
def test_tensor_agrees_with_scalar(x: float, seed: int, mode: RoundingMode) -> None:
    values = torch.tensor([x, -x], dtype=torch.float64)
    assert [int(v) for v in round_tensor(values, mode, seed=seed).tolist()] == [
        round_scalar(x, mode, seed=seed, index=0),
        round_scalar(-x, mode, seed=seed, index=1),
    ]


@given(x=numbers, mode=st.sampled_from(MODES))
def test_rounding_gives_a_neighbour_and_the_nearest_in_half_modes(x: float, mode: RoundingMode) -> None:
    found, exact = round_scalar(x, mode), Fraction(x)
    assert abs(found - exact) < 1
    if mode.startswith("half"):
        assert abs(found - exact) <= Fraction(1, 2)


@pytest.mark.parametrize("mode", [m for m in MODES if m != "stochastic"])
@given(v=st.integers(-(2**62), 2**62), bits=st.integers(0, 63))
def test_shift_is_the_rounded_quotient(mode: RoundingMode, v: int, bits: int) -> None:
    assert int(shift_right(torch.tensor([v]), bits, mode)) == round_scalar(Fraction(v, 1 << bits), mode)


@pytest.mark.parametrize("mode", [m for m in MODES if m != "stochastic"])
@given(v=st.integers(-(2**62), 2**62), by=st.integers(1, 2**62 - 1) | st.integers(1, 64))
def test_division_is_the_rounded_quotient(mode: RoundingMode, v: int, by: int) -> None:
    assert int(divide(torch.tensor([v]), by, mode)) == round_scalar(Fraction(v, by), mode)
