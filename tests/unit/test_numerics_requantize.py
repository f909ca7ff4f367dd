"""Every requantization variant against a plain restatement in Python integers and rationals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import quantizer.numerics.requantize as requantize_module
from quantizer.core.dtypes import dtype
from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.variants import Variant
from quantizer.numerics.integer_requantize import ROUNDINGS, IntegerMode, requantize_integers
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import fixed_point, q15, rescale_left_shifted
from quantizer.numerics.requantize import requantize, requantize_sum
from quantizer.numerics.rounding import round_scalar

ROOT = Path(__file__).parents[2]
MODES = [m for m in get_args(RoundingMode) if m != "stochastic"]
EDGES = [0, 1, -1, 2, -2, 127, -128, 255, 1 << 15, -(1 << 15), (1 << 24) + 1, -(1 << 24) - 1, (1 << 31) - 1, -(1 << 31)]


def output(name: str = "int8", zero_point: int | list[int] = 3, scale: float = 0.1) -> QParams:
    kind = dtype(name)
    zero = torch.tensor(zero_point)
    axis = 1 if zero.dim() else None
    return QParams(kind, torch.full(zero.shape, scale, dtype=torch.float64), zero, kind.min, kind.max, axis)


def numbers(
    variant: Variant, mantissa: Tensor | float | list[float], shift: Tensor | int = 0, divisor: float = 1.0
) -> Rescale:
    values = torch.as_tensor(mantissa, dtype=torch.float64)
    return Rescale(variant, values, torch.as_tensor(shift).expand(values.shape), divisor)


def accumulators(seed: int, reach: int = 40_000, size: int = 400) -> Tensor:
    draw = torch.randint(-reach, reach, (size,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([draw, torch.tensor(EDGES)])


def high_mul(a: int, b: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul, as written: a nudge by the sign, then division toward zero."""
    product = a * b
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return nudged // (1 << 31) if nudged >= 0 else -(-nudged // (1 << 31))


def divide_by_power(x: int, exponent: int) -> int:
    """gemmlowp's RoundingDivideByPOT, as written: remainder against a threshold that depends on the sign."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def q31_double(a: int, q: int, shift: int) -> int:
    left, right = max(0, 31 - shift), max(0, shift - 31)
    return divide_by_power(high_mul(a << left, q), right)


def ruy(a: int, q: int, shift: int) -> int:
    if shift <= 31:
        return q31_single(a, q, shift)
    right = shift - 31
    return (((a * q + (1 << 30)) >> 31) + (1 << (right - 1))) >> right


def q31_single(a: int, q: int, shift: int) -> int:
    return (a * q + (1 << (shift - 1))) >> shift


LITERAL: dict[Variant, Callable[[int, int, int], int]] = {
    "q31_single": q31_single,
    "q31_double": q31_double,
    "q31_half_up": ruy,
    "q15_half_up": q31_single,
}


def clamped(values: list[int], out: QParams) -> list[int]:
    return [min(max(v + int(out.zero_point), out.qmin), out.qmax) for v in values]


@pytest.mark.parametrize("variant", LITERAL)
@pytest.mark.parametrize("ratio", [0.0037, 2.0**-8, 2.0**-10, 0.5, 0.9999, 1.0, 2.0**-31, 1.7])
def test_integer_variants_are_the_literal_algorithms(variant: Variant, ratio: float) -> None:
    acc = accumulators(1)
    mantissa, shift = q15(ratio) if variant == "q15_half_up" else fixed_point(ratio)
    out = output("int16", 11)
    expected = [LITERAL[variant](a, int(mantissa), int(shift)) for a in acc.tolist()]
    assert requantize(acc, numbers(variant, mantissa, shift), out).tolist() == clamped(expected, out)


def test_variants_differ_on_ties() -> None:
    """If two variants never differed, tests could not distinguish them."""
    acc, ratio, out = torch.arange(-(1 << 15), 1 << 15), 2.0**-6, output("int16", 1)
    fixed: list[Variant] = ["q31_single", "q31_double", "q31_half_up"]
    found = [requantize(acc, numbers(v, *fixed_point(ratio)), out) for v in fixed]
    real: list[Variant] = ["f32_even", "f32_even_zpin", "half_away"]
    found += [requantize(acc, numbers(v, ratio), out) for v in real]
    assert all(not torch.equal(a, b) for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize("ratio", [0.0037, 2.0**-8, 0.37, 1.5])
def test_half_away_rounds_the_float64_product(ratio: float) -> None:
    acc, out = accumulators(7), output("int16", -4)
    expected = [round_scalar(a * ratio, "half_away") for a in acc.tolist()]
    assert requantize(acc, numbers("half_away", ratio), out).tolist() == clamped(expected, out)


@pytest.mark.parametrize("multiplier", [0.0037, 2.0**-8, 0.37, 1.0])
def test_float32_variants_round_float32_products(multiplier: float) -> None:
    acc = accumulators(2)
    single = np.float32(multiplier)
    product = acc.numpy().astype(np.float32) * single
    for zero in (3, -8, 0):
        out = output("int8", zero)
        outside = np.clip(np.rint(product).astype(np.float64) + zero, -128, 127)
        assert requantize(acc, numbers("f32_even", float(single)), out).tolist() == outside.tolist()
        inside = np.clip(np.rint(product + np.float32(zero)), -128, 127)
        assert requantize(acc, numbers("f32_even_zpin", float(single)), out).tolist() == inside.tolist()


def test_zero_point_before_rounding_moves_ties() -> None:
    ties = torch.arange(-255, 256, 2)
    found = [requantize(ties, numbers(v, 0.5), output("int16", 1)) for v in ("f32_even", "f32_even_zpin")]
    assert not torch.equal(*found)


@pytest.mark.parametrize("mode", MODES)
def test_multiplier_shift_rounds_once_then_adds_the_zero_point(mode: RoundingMode) -> None:
    acc = torch.cat([torch.arange(-150, 150), accumulators(3, size=150)])
    for multiplier, shift in [(1, 3), (243, 16), (32767, 31), (255, -2), (1, 0)]:
        out = output("int16", -5)
        expected = [round_scalar(Fraction(a * multiplier) / Fraction(2) ** shift, mode) for a in acc.tolist()]
        found = requantize(acc, numbers("multiplier_shift", multiplier, shift), out, rounding=mode)
        assert found.tolist() == clamped(expected, out)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("mantissa", "divisor"),
    [
        (2.0**-6, 1.0),
        (0.75, 10.5),
        (3.0, 14.0),
        (0.1, 0.3),
        (0.1 * 0.1, 7.0),
        (1.0, 3.0),
        (1e-30, 1e-28),
        (2.0**-80, 2.0**-70),
    ],
)
def test_exact_is_the_rounded_rational(mode: RoundingMode, mantissa: float, divisor: float) -> None:
    acc = torch.cat([torch.arange(-180, 180), accumulators(4, size=100), torch.tensor([(1 << 60) + 1, -(1 << 62)])])
    out = output("int16", 9)
    expected = [round_scalar(a * Fraction(mantissa) / Fraction(divisor), mode) for a in acc.tolist()]
    assert requantize(acc, numbers("exact", mantissa, divisor=divisor), out, rounding=mode).tolist() == clamped(
        expected, out
    )


def test_exact_rounding_decides_beyond_float64() -> None:
    """The quotient is a tie in float64 but lies 2**-60 beside it: half-up and half-down must agree."""
    mantissa, divisor = 1.0 + 2.0**-52, 2.0
    odd = torch.tensor([1, 3, -1, -3])
    out = output("int8", 0)

    found = [
        requantize(odd, numbers("exact", mantissa, divisor=divisor), out, rounding=m) for m in ("half_up", "half_down")
    ]
    assert found[0].tolist() == found[1].tolist() == [1, 2, -1, -2]


def test_exact_rounds_wide_codes_and_wide_sums() -> None:
    acc = torch.tensor([(1 << 53) + 1, (1 << 53) + 3, -(1 << 53) - 1])
    out = output("int32", 0)
    expected = [round_scalar(Fraction(a, 1 << 23), "half_up") for a in acc.tolist()]
    assert requantize(acc, numbers("exact", 2.0**-23), out, rounding="half_up").tolist() == expected


@pytest.mark.parametrize(
    "variant", ["exact", "f32_even", "f32_even_zpin", "multiplier_shift", "q31_double", "half_away"]
)
@pytest.mark.parametrize("batch", [1, 2])
def test_channels_blocks_and_dtypes_change_nothing(
    variant: Variant, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per-channel numbers and zero points, in pieces along the batch or the channels: the codes of the whole."""
    acc = torch.randint(-30_000, 30_000, (batch, 3, 23, 31), generator=torch.Generator().manual_seed(5))
    ratios = torch.tensor([0.0037, 2.0**-8, 0.01], dtype=torch.float64)
    mantissa, shift = (ratios.float().double(), torch.zeros(3, dtype=torch.int64))
    if variant == "q31_double":
        mantissa, shift = fixed_point(ratios)
    elif variant == "multiplier_shift":
        mantissa, shift = torch.tensor([243, 1, 20972]), torch.tensor([16, 8, 21])
    out = output("int8", [4, -3, 0])
    made = numbers(variant, mantissa, shift)
    whole = requantize(acc, made, out, channel_axis=1)
    assert whole.dtype == torch.int64
    for channel in range(3):
        place = slice(channel, channel + 1)
        numbers_there, output_there = made.sliced(channel, channel + 1), out.sliced(channel, channel + 1)
        one = requantize(acc[:, place, :2], numbers_there, output_there, channel_axis=1)
        assert torch.equal(one, whole[:, place, :2])
    monkeypatch.setattr(requantize_module, "_BLOCK", 700)
    for kind in (torch.int64, torch.int32, torch.float32):
        assert torch.equal(requantize(acc.to(kind), made, out, channel_axis=-3), whole)
    assert torch.equal(requantize(acc.transpose(2, 3), made, out, channel_axis=1), whole.transpose(2, 3))
    assert requantize(acc[:0], made, out, channel_axis=1).shape == (0, 3, 23, 31)


def test_wide_codes_keep_their_last_bit() -> None:
    acc = torch.tensor([(1 << 24) + 2, -(1 << 24) - 2])
    assert requantize(acc, numbers("f32_even", 1.0), output("int32", 1)).tolist() == [(1 << 24) + 3, -(1 << 24) - 1]


def test_input_is_not_written_to() -> None:
    acc = torch.tensor([3.0, 5.0])
    for variant in ("f32_even", "f32_even_zpin", "exact"):
        requantize(acc, numbers(variant, 0.5), output())
        assert acc.tolist() == [3.0, 5.0]


def test_invalid_arguments_are_refused_by_name() -> None:
    per_channel = numbers("f32_even", [0.5, 0.25])
    with pytest.raises(GraphError, match="channel_axis must say"):
        requantize(torch.ones(1, 2), per_channel, output())
    with pytest.raises(GraphError, match="has 3"):
        requantize(torch.ones(1, 3), per_channel, output(), channel_axis=1)
    with pytest.raises(GraphError, match="leaves 62 bits"):
        requantize(torch.tensor([1 << 40]), numbers("q31_single", *fixed_point(0.5)), output())
    with pytest.raises(GraphError, match="shift -4: this variant shifts right"):
        requantize(torch.tensor([1]), numbers("q15_half_up", 1 << 14, -4), output())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("factors", "divisor"), [((0.1, 0.07), 0.3), ((0.5, 0.125), 0.25), ((2.0**-70, 1.0), 3.0)])
def test_exact_sum_is_the_rounded_rational(mode: RoundingMode, factors: tuple[float, float], divisor: float) -> None:
    a, b = torch.arange(-128, 128), torch.arange(128, -128, -1).reshape(256, 1)
    made = Rescale(
        "exact", torch.tensor(1.0, dtype=torch.float64), torch.tensor(0), divisor, {"a": factors[0], "b": factors[1]}
    )
    out = output("int8", 7)
    found = requantize_sum({"a": a, "b": b}, made, out, rounding=mode)[::5, ::3]
    expected = [
        clamped(
            [
                round_scalar((x * Fraction(factors[0]) + y * Fraction(factors[1])) / Fraction(divisor), mode)
                for x in a[::3].tolist()
            ],
            out,
        )
        for y in b[::5, 0].tolist()
    ]
    assert found.tolist() == expected


def test_integer_factors_are_summed_in_integers() -> None:
    terms = {"a": torch.arange(-500, 500), "b": torch.arange(500, -500, -1)}
    made = Rescale("multiplier_shift", torch.tensor(131.0), torch.tensor(22), factors={"a": 28291.0, "b": 21808.0})
    out = output("int16", 0)
    acc = [28291 * x + 21808 * y for x, y in zip(terms["a"].tolist(), terms["b"].tolist(), strict=True)]
    expected = [round_scalar(Fraction(a * 131, 1 << 22), "half_even") for a in acc]
    assert requantize_sum(terms, made, out).tolist() == expected


def test_left_shifted_sum_is_the_literal_add() -> None:
    """TensorFlow Lite's 8-bit add, step by step."""
    s1, s2, s3 = 0.31, 0.07, 0.29
    top = 2 * max(s1, s2)
    q1, q2, q3 = ([int(t) for t in fixed_point(r)] for r in (s1 / top, s2 / top, top / ((1 << 20) * s3)))
    a, b = torch.arange(-128, 128), torch.arange(127, -129, -1)
    out = output("int8", 5)
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total = q31_double(x << 20, *q1) + q31_double(y << 20, *q2)
        expected.append(q31_double(total, *q3))
    made = rescale_left_shifted("q31_double", {"a": s1, "b": s2}, s3, 20)
    assert requantize_sum({"a": a, "b": b}, made, out, places=20).tolist() == clamped(expected, out)


VECTORS = json.loads((ROOT / "cases/reference/tpulang_requant.json").read_text())["cases"]
TPULANG_MODES: list[IntegerMode] = ["q31_wrapping_left", "q31_wrapping", "integer_multiplier_shift"]


def test_requantization_equals_every_tpulang_vector() -> None:
    assert len(VECTORS) == 98
    for vector in VECTORS:
        kind = dtype(vector["out_dtype"])
        found = requantize_integers(
            torch.tensor(vector["x"]),
            vector["mul"],
            vector["shift"],
            vector["offset"],
            TPULANG_MODES[vector["requant_mode"]],
            ROUNDINGS[vector["round_mode"]],
            kind.min,
            kind.max,
        )
        assert found.tolist() == vector["y"], vector


def test_tpulang_left_shift_wraps_in_int32_and_saturates() -> None:
    x = torch.tensor([1 << 29, -(1 << 29), 3])
    found = requantize_integers(x, 1 << 30, 2, 0, "q31_wrapping_left", "half_up", -(1 << 31), (1 << 31) - 1)
    assert found.tolist() == [-(1 << 30), -(1 << 30), 6]
    doubled = requantize_integers(x, 1, 2, 1, "integer_multiplier_shift", "half_up", -(1 << 31), (1 << 31) - 1)
    assert doubled.tolist() == [(1 << 31) - 1, -(1 << 31) + 1, 13]
    halves = requantize_integers(torch.tensor([-1, 1]), 1 << 30, 0, 0, "q31_wrapping", "half_away", -128, 127)
    assert halves.tolist() == [0, 1]
    lowest = torch.tensor([-(1 << 31)])
    saturated = requantize_integers(lowest, -(1 << 31), -1, 0, "q31_wrapping", "down", -(1 << 31), (1 << 31) - 1)
    assert saturated.tolist() == [(1 << 30) - 1]


@pytest.mark.parametrize("mode", TPULANG_MODES)
def test_tpulang_through_requantize(mode: IntegerMode) -> None:
    acc = accumulators(6)
    bits = 8 if mode == "integer_multiplier_shift" else 31
    mantissa, shift = fixed_point(0.0037, bits)
    places = -int(shift) if mode == "integer_multiplier_shift" else 31 - int(shift)
    direct = requantize_integers(acc, int(mantissa), places, 3, mode, "half_away", -128, 127)
    assert torch.equal(requantize(acc, numbers(mode, mantissa, shift), output(), rounding="half_away"), direct)


def rounded_shift(v: int, s: int, mode: str) -> int:
    """tpu-mlir's RightShiftRound, as written, on numbers of any size."""
    if s <= 0:
        return v << -s
    s = min(s, 63)
    q, r, h = v >> s, v & ((1 << s) - 1), 1 << (s - 1)
    return {
        "half_to_even": q + ((q & 1) if r == h else r > h),
        "half_away_from_zero": q + ((r >= h) if v >= 0 else (r > h)),
        "half_up": q + (r >= h),
        "half_down": q + (r > h),
        "towards_zero": q + (r != 0 and v < 0),
        "up": q + (r != 0),
        "down": q,
    }[mode]


def requant_int(x: int, mul: int, shift: int, offset: int, mode: int, rounding: str, zero: int) -> int:
    """TpuLang's requant_int of one number, as written."""
    if mode == 2:
        return rounded_shift((x - zero) * mul, -shift, rounding) + offset
    left = (((x << max(shift, 0)) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    y = max(-(1 << 31), min((1 << 31) - 1, rounded_shift(left * mul, 31, "half_up")))
    return (rounded_shift(y, -shift, rounding) if shift < 0 else y) + offset


def test_tpulang_requantization_equals_its_source_in_every_mode() -> None:
    rng = random.Random(8)
    x = torch.tensor(EDGES + [rng.randrange(-(1 << 20), 1 << 20) for _ in range(40)])
    for mode, variant in enumerate(TPULANG_MODES):
        for theirs, ours in ROUNDINGS.items():
            for kind in map(dtype, ("int8", "uint8", "int16", "uint16", "int32", "uint32")):
                for shift in (0, -1, -7, -31, -40, -62, -63, -64, -200, 1, 3, 8):
                    mul = rng.choice((1, -1, 3, (1 << 30), (1 << 31) - 1, -(1 << 20))) >> (
                        20 if mode == 2 and shift > 0 else 0
                    )
                    offset, zero = rng.randrange(-9, 9), rng.randrange(-128, 128) if mode == 2 else 0
                    found = requantize_integers(
                        x, mul, shift, offset, variant, ours, kind.min, kind.max, zero_point=zero
                    )
                    wanted = [requant_int(v, mul, shift, offset, mode, theirs, zero) for v in x.tolist()]
                    assert found.tolist() == [max(kind.min, min(kind.max, v)) for v in wanted], (
                        variant,
                        theirs,
                        shift,
                        mul,
                    )


@pytest.mark.parametrize("mode", TPULANG_MODES)
def test_tpulang_lists_lie_along_an_axis(mode: IntegerMode) -> None:
    x = torch.arange(-60, 60).reshape(2, 3, 4, 5) * 1000
    mul, shift, offset = [1 << 30, 3 << 28, 1 << 29], [-2, 1, -9], [1, -2, 3]
    whole = requantize_integers(x, mul, shift, offset, mode, "half_even", -32768, 32767)
    for i in range(3):
        part = requantize_integers(x[:, i], mul[i], shift[i], offset[i], mode, "half_even", -32768, 32767)
        assert torch.equal(whole[:, i], part)
    turned = requantize_integers(x.transpose(1, 3), mul, shift, offset, mode, "half_even", -32768, 32767, axis=-1)
    assert torch.equal(turned, whole.transpose(1, 3))
    assert torch.equal(
        requantize_integers(x, [7], [-3], [0], mode, "down", -128, 127),
        requantize_integers(x, 7, -3, 0, mode, "down", -128, 127),
    )
    with pytest.raises(GraphError, match=r"shift: 2 numbers along axis 1 of shape \[2, 3, 4, 5\]: one for each slice"):
        requantize_integers(x, mul, [1, 2], offset, mode, "down", -128, 127)
    if mode != "integer_multiplier_shift":
        with pytest.raises(GraphError, match="zero_point=3: .* must be 0"):
            requantize_integers(x, 1, 0, 0, mode, "down", -128, 127, zero_point=3)
