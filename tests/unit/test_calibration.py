"""Statistics and local strategies against reference implementations in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from quantizer.calibration.statistics import Statistics, Wanted, observe
from quantizer.calibration.strategies import Strategy, calibrated, parse_strategy
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.numerics.deviates import deviates

Array = NDArray[Any]
F = np.float32
LAPLACE = {4: 5.03, 8: 9.89, 9: 11.16, 16: 20.27}
GAUSS = {4: 2.55, 8: 3.92, 9: 4.21, 16: 5.89}


def batches(name: int, shape: tuple[int, ...] = (2, 5, 7, 3), count: int = 4) -> list[Array]:
    """Return batches of growing spread around a mean that is not 0."""
    return [deviates(shape, (name, i)) * F(1 + i / 2) + F(0.3) for i in range(count)]


def observed(values: list[Array], wanted: Wanted, axis: int | None = None) -> Statistics:
    found = None
    for batch in values:
        found = observe(found, torch.from_numpy(batch), wanted, axis)
    assert found is not None
    return found


def moving(numbers: list[Any], momentum: float) -> Any:
    """Return the moving average in float32, one rounding an operation."""
    found = numbers[0]
    for number in numbers[1:]:
        found = F(momentum) * found + F(1.0 - momentum) * number
    return found


def flat(batch: Array, axis: int | None) -> Array:
    """Return one row for each slice."""
    return batch.reshape(1, -1) if axis is None else np.moveaxis(batch, axis, 0).reshape(batch.shape[axis], -1)


def near(got: torch.Tensor, wanted: Any, terms: int) -> None:
    """Assert equality up to the rounding of a float32 sum of so many terms in any order."""
    wanted = np.asarray(wanted, dtype=np.float64)
    error = np.abs(got.double().numpy().reshape(wanted.shape) - wanted)
    assert (error <= terms * 2.0**-24 * (1 + np.abs(wanted))).all()


@pytest.mark.parametrize("axis", [None, 0, 1, 3, -1])
@pytest.mark.parametrize("momentum", [0.9, 0.5, 0.0, 1.0])
def test_statistics_equal_numpy(axis: int | None, momentum: float) -> None:
    values = batches(1)
    found = observed(values, Wanted(momentum, moments=True), axis)
    rows = [flat(batch, axis) for batch in values]
    assert np.array_equal(found.low.numpy().reshape(-1), np.min([r.min(1) for r in rows], axis=0))
    assert np.array_equal(found.high.numpy().reshape(-1), np.max([r.max(1) for r in rows], axis=0))
    assert np.array_equal(found.running_low.numpy().reshape(-1), moving([r.min(1) for r in rows], momentum))
    assert np.array_equal(found.running_high.numpy().reshape(-1), moving([r.max(1) for r in rows], momentum))
    size = 4 * rows[0].shape[1]
    assert found.mean is not None
    assert found.deviation is not None
    assert found.absolute_deviation is not None
    near(found.mean.reshape(-1), moving([r.astype(np.float64).mean(1) for r in rows], momentum), size)
    near(found.deviation.reshape(-1), moving([r.astype(np.float64).std(1, ddof=1) for r in rows], momentum), size)
    spread = [np.abs(r - r.astype(np.float64).mean(1, keepdims=True)).mean(1) for r in rows]
    near(found.absolute_deviation.reshape(-1), moving(spread, momentum), size)


@pytest.mark.parametrize("axis", [None, 3])
def test_histograms_span_their_own_batch_and_are_averaged(axis: int | None) -> None:
    values = batches(2)
    found = observed(values, Wanted(0.9, bins=64), axis)
    assert found.histogram is not None
    rows = [flat(batch, axis) for batch in values]
    counts = [np.stack([np.histogram(r, 64, (r.min(), r.max()))[0] for r in batch]).astype(F) for batch in rows]
    got, wanted = found.histogram.numpy().reshape(counts[0].shape), moving(counts, 0.9)
    assert np.isclose(got.sum(1), rows[0].shape[1]).all()
    assert np.abs(np.cumsum(got - wanted, axis=1)).max() <= len(values)
    """A value on the border of two bins may fall into either; nothing moves further."""


def test_the_deviation_of_one_value_is_1() -> None:
    found = observed([np.array([[2.0]], dtype=F)], Wanted(moments=True))
    assert (float(found.mean or 0), float(found.deviation or 0)) == (2.0, 1.0)  # type: ignore[arg-type]


def test_outliers_are_clipped_or_replaced() -> None:
    values = np.array([-100.0, -2.0, 1.0, 3.0, 1e30], dtype=F)
    clipped = observed([values], Wanted(trim=("clip", -5.0, 7.0)))
    assert (float(clipped.low), float(clipped.high)) == (-5.0, 7.0)
    second = observed([values], Wanted(trim=("second", -50.0, 50.0)))
    assert (float(second.low), float(second.high)) == (-2.0, 3.0)
    unbounded = observed([np.array([-np.inf, np.inf], dtype=F)], Wanted())
    assert (float(unbounded.low), float(unbounded.high)) == (-(2.0**31), 2.0**31)


def test_values_without_a_range_are_refused() -> None:
    with pytest.raises(GraphError, match="NaN"):
        observe(None, torch.tensor([1.0, math.nan]), Wanted())
    with pytest.raises(GraphError, match="at least one value"):
        observe(None, torch.zeros(0, 3), Wanted())


def restated(name: str, found: Statistics, numbers: tuple[float, ...], bits: int, symmetric: bool) -> Any:  # noqa: FBT001
    """Return a strategy's range from the statistics, float64."""
    values = {
        key: np.float64(getattr(found, key)) if getattr(found, key) is not None else np.float64(0)
        for key in ("low", "high", "running_low", "running_high", "mean", "deviation", "absolute_deviation")
    }
    if name in ("extrema", "in_ir"):
        return values["low"], values["high"]
    if name == "mean":
        return values["running_low"], values["running_high"]
    if name == "percentile":
        return values["low"] * numbers[0], values["high"] * numbers[0]
    if name == "nstd":
        spread = numbers[0] * values["deviation"]
        low = np.maximum(values["running_low"], values["mean"] - spread)
        return low, np.minimum(values["running_high"], values["mean"] + spread)
    laplace = name == "aciq_laplace"
    clip = (LAPLACE if laplace else GAUSS)[bits] * values["absolute_deviation" if laplace else "deviation"]
    if symmetric:
        end = np.abs(values["mean"]) + clip * numbers[0]
        return -end, end
    low = np.maximum(values["running_low"], values["mean"] - clip)
    return low, low + 2 * clip * numbers[0]


@pytest.mark.parametrize("axis", [None, 3])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8, 9, 16])
@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("extrema", ()),
        ("mean", ()),
        ("in_ir", ()),
        ("1std", (1.0,)),
        ("3std", (3.0,)),
        ("aciq_laplace", (1.0,)),
        ("0.5aciq_laplace", (0.5,)),
        ("aciq_gauss", (1.0,)),
        ("1.25aciq_gauss", (1.25,)),
        ("percentile", (1.0,)),
        ("0.9percentile", (0.9,)),
    ],
)
def test_each_strategy_equals_its_numpy_reference(
    text: str, numbers: tuple[float, ...], bits: int, symmetric: bool, axis: int | None
) -> None:  # noqa: FBT001
    strategy = parse_strategy(text)
    found = observed(batches(3), Wanted(0.9, moments=strategy.moments, bins=64 if strategy.histogram else None), axis)
    low, high = calibrated(strategy, found, bits=bits, symmetric=symmetric)
    wanted = restated(strategy.name, found, numbers, bits, symmetric)
    near(low, np.minimum(wanted[0], 0.0), 8)
    near(high, np.maximum(wanted[1], 0.0), 8)


@pytest.mark.parametrize("text", ["extrema", "mean", "2std", "aciq_gauss", "0.5percentile", "5kld"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_range_contains_zero(text: str, sign: float) -> None:
    strategy = parse_strategy(text)
    values = [F(sign) * (np.abs(batch) + F(1.0)) for batch in batches(4)]
    found = observed(values, Wanted(0.9, moments=True, bins=512))
    low, high = calibrated(strategy, found, bits=8, symmetric=False)
    assert float(low) <= 0.0 <= float(high)


def best_window(counts: Array, low: float, high: float, codes: int, best: int) -> tuple[float, float]:
    """Return the clip of least divergence, window by window, float64."""
    bins, fullest = len(counts), int(counts.argmax())
    if low >= 0:
        first = 0
    elif high <= 0:
        first = bins - codes
    elif fullest < bins - 1 - fullest:
        first = max(fullest - codes // 2, 0)
    else:
        first = min(fullest + codes // 2, bins - 1) - codes + 1
    last = first + codes - 1
    grown = max(first + 1, bins - last)
    padded = np.concatenate([np.zeros(grown - first - 1), counts.astype(np.float64), np.zeros(grown - (bins - last))])
    divergences = []
    for step in range(grown):
        left = grown - 1 - step
        right = len(padded) - 1 - left
        share = padded[left : right + 1].copy()
        share[0], share[-1] = padded[: left + 1].sum(), padded[right:].sum()
        share /= padded.sum()
        size = len(share) // codes
        group = np.minimum(np.arange(len(share)) // size, codes - 1)
        total, filled = np.bincount(group, share, codes), np.bincount(group, share != 0, codes)
        q = (total / np.maximum(filled, 1))[group]
        kept = share > 0
        divergences.append((share[kept] * np.log(share[kept] / q[kept])).sum())
    chosen = int(np.argsort(np.array(divergences), kind="stable")[:best].max())
    width = (high - low) / bins
    return low + max(first - chosen, 0) * width, high - (bins - 1 - min(last + chosen, bins - 1)) * width


@pytest.mark.parametrize("kind", ["both", "positive", "negative", "skewed"])
@pytest.mark.parametrize("best", [2, 10])
@pytest.mark.parametrize("bits", [4, 6])
def test_kld_finds_the_best_window(kind: str, best: int, bits: int) -> None:
    values = deviates((20_000,), (5, best)) ** (F(3) if kind == "skewed" else F(1))
    values = {"positive": np.abs(values), "negative": -np.abs(values)}.get(kind, values).astype(F)
    found = observed([values], Wanted(bins=512))
    assert found.histogram is not None
    low, high = calibrated(Strategy("kld", (float(best),)), found, bits=bits, symmetric=True)
    counts = found.histogram.numpy()
    wanted = best_window(counts, float(found.running_low), float(found.running_high), 1 << bits, best)
    step = (float(found.running_high) - float(found.running_low)) / 512
    assert abs(float(low) - min(wanted[0], 0.0)) <= step / 8
    assert abs(float(high) - max(wanted[1], 0.0)) <= step / 8


def test_kld_keeps_the_extremes_unless_bins_exceed_codes() -> None:
    found = observed(batches(6), Wanted(bins=256))
    low, high = calibrated(parse_strategy("kld"), found, bits=8, symmetric=True)
    assert (float(low), float(high)) == (float(found.running_low), float(found.running_high))


@pytest.mark.parametrize(("shift", "weight"), [(2.0, 0.7), (-2.0, 0.8), (-20.0, 0.8)])
def test_weighted_scale_weighs_both_ends(shift: float, weight: float) -> None:
    found = observed([batch + F(shift) for batch in batches(7)], Wanted(moments=True))
    low, high = calibrated(parse_strategy("weighted_scale_param[0.7,0.8,0.6,0.01]"), found, bits=8, symmetric=True)
    positive, negative = max(0.0, float(found.running_high)) or 255.0, abs(min(0.0, float(found.running_low))) or 255.0
    end = 255 / (weight * 255 / positive + (1 - weight) * 255 / negative)
    signed = float(found.low) < 0
    near(high, end, 8)
    near(low, -end if signed else 0.0, 8)


def test_the_search_of_weighted_scale_is_refused() -> None:
    found = observed(batches(8), Wanted(moments=True))
    with pytest.raises(UnsupportedError, match="a <= 1"):
        calibrated(parse_strategy("weighted_scale_param[2,0.8,0.6,0.01]"), found, bits=8, symmetric=True)


@pytest.mark.parametrize(
    "text", ["", "meanfoo", "extremaX", "std", "3 sigma", "-1std", "1e5percentile", "weighted_scale_param[1,2]"]
)
def test_unknown_strategies_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be one of extrema, mean"):
        parse_strategy(text)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("10KLD", Strategy("kld", (10.0,))),
        ("kld", Strategy("kld", (10.0,))),
        ("3STD", Strategy("nstd", (3.0,))),
        ("1.5aciq_laplace", Strategy("aciq_laplace", (1.5,))),
        ("percentile", Strategy("percentile", (1.0,))),
        ("weighted_scale_param[0.1, 0.2, 0.3, 0.4]", Strategy("weighted", (0.1, 0.2, 0.3, 0.4))),
    ],
)
def test_strategies_are_read(text: str, strategy: Strategy) -> None:
    assert parse_strategy(text) == strategy
