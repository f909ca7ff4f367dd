"""Every rounding mode, on tensors and scalars, shifts and quotients."""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

import pytest
import torch

from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.rounding import divide, round_scalar, round_tensor, shift_right, splitmix64

MODES = get_args(RoundingMode)
POINTS = [-2.5, -1.75, -1.5, -0.5, -0.25, 0.0, 0.25, 0.5, 1.5, 1.75, 2.5, 3.0]
EXPECTED = {
    "half_even": [-2, -2, -2, 0, 0, 0, 0, 0, 2, 2, 2, 3],
    "half_up": [-2, -2, -1, 0, 0, 0, 0, 1, 2, 2, 3, 3],
    "half_down": [-3, -2, -2, -1, 0, 0, 0, 0, 1, 2, 2, 3],
    "half_away": [-3, -2, -2, -1, 0, 0, 0, 1, 2, 2, 3, 3],
    "half_toward_zero": [-2, -2, -1, 0, 0, 0, 0, 0, 1, 2, 2, 3],
    "up": [-2, -1, -1, 0, 0, 0, 1, 1, 2, 2, 3, 3],
    "down": [-3, -2, -2, -1, -1, 0, 0, 0, 1, 1, 2, 3],
    "toward_zero": [-2, -1, -1, 0, 0, 0, 0, 0, 1, 1, 2, 3],
}
HARD = [
    0.49999997, 0.49999999999999994, -0.49999999999999994, 0.5000000000000001, -0.5000000000000001, 5e-324, -5e-324,
    1e-20, -1e-20, 4503599627370495.5, -4503599627370495.5, 4503599627370497.0, 9007199254740993.0, -9007199254740991.0,
    1e300, -1e300, 2.0**24 + 0.5, 0.0, -0.0,
]  # fmt: skip


def doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("mode", EXPECTED)
def test_values_by_hand(mode: RoundingMode) -> None:
    assert round_tensor(doubles(POINTS), mode).tolist() == EXPECTED[mode]
    assert [round_scalar(p, mode) for p in POINTS] == EXPECTED[mode]
    halves = torch.tensor([round(4 * p) for p in POINTS])
    assert shift_right(halves, 2, mode).tolist() == EXPECTED[mode]
    assert divide(halves * 3, 12, mode).tolist() == EXPECTED[mode]


@pytest.mark.parametrize("mode", MODES)
def test_tensor_and_scalar_agree_on_hard_values(mode: RoundingMode) -> None:
    rounded = round_tensor(doubles(HARD), mode, seed=3)
    assert [int(v) for v in rounded.tolist()] == [
        round_scalar(value, mode, seed=3, index=i) for i, value in enumerate(HARD)
    ]


@pytest.mark.parametrize("mode", MODES)
def test_rounding_keeps_integers_infinities_and_nan(mode: RoundingMode) -> None:
    values = doubles([-7.0, 0.0, 2.0**52, float("inf"), float("-inf")])
    assert torch.equal(round_tensor(values, mode), values)
    assert bool(round_tensor(doubles([float("nan")]), mode).isnan().all())


def test_half_up_is_not_floor_of_x_plus_half() -> None:
    just_below = 0.49999999999999994
    assert round_scalar(just_below, "half_up") == 0
    assert float(round_tensor(doubles([just_below]), "half_up")) == 0.0
    assert round_scalar(Fraction(1, 2) - Fraction(1, 10**40), "half_up") == 0


def test_stochastic_repeats_is_unbiased_and_counts_by_index() -> None:
    values = torch.full((200_000,), 2.25, dtype=torch.float64)
    first = round_tensor(values, "stochastic", seed=1)
    assert torch.equal(first, round_tensor(values, "stochastic", seed=1))
    assert not torch.equal(first, round_tensor(values, "stochastic", seed=2))
    assert set(first.tolist()) == {2.0, 3.0}
    # binomial(200000, 1/4): 6 standard deviations are 1162
    assert abs(int((first == 3.0).sum()) - 50_000) < 1162
    assert abs(int((round_tensor(-values, "stochastic", seed=1) == -3.0).sum()) - 50_000) < 1162
    assert torch.equal(round_tensor(values.reshape(400, 500), "stochastic", seed=1).flatten(), first)
    shifted = shift_right(torch.full((200_000,), 9), 2, "stochastic", seed=1)
    assert abs(int((shifted == 3).sum()) - 50_000) < 1162
    divided = divide(torch.full((200_000,), 27), 12, "stochastic", seed=5)
    assert abs(int((divided == 3).sum()) - 50_000) < 1162


def test_splitmix64_reference_vector() -> None:
    """First outputs of splitmix64 for state 1234567, as published with xoshiro."""
    golden, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    inverse = pow(golden, -1, 1 << 64)
    start = 1234567 * inverse & mask
    counters = [(start + i) & mask for i in (1, 2, 3)]
    signed = torch.tensor([c - (1 << 64) if c >> 63 else c for c in counters])
    assert [v & mask for v in splitmix64(signed).tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_shift_by_tensor_beyond_63_and_to_the_left() -> None:
    values = torch.tensor([5, -5, 1 << 62, -(1 << 63), 3])
    bits = torch.tensor([0, -3, 200, 64, -1])
    assert shift_right(values, bits, "half_up").tolist() == [5, -40, 1, -1, 6]
    assert shift_right(values, 63, "down").tolist() == [0, -1, 0, -1, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_round_scalar_refuses_nan_and_infinity(bad: float) -> None:
    with pytest.raises(GraphError, match="cannot be rounded"):
        round_scalar(bad, "half_even")


def test_unknown_mode_is_named() -> None:
    with pytest.raises(GraphError, match="no such mode"):
        round_tensor(doubles([0.5]), "nearest")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="no such mode"):
        round_scalar(0.5, "nearest")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="no such mode"):
        shift_right(torch.tensor([1]), 1, "nearest")  # type: ignore[arg-type]
