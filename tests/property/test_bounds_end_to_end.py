"""Quantize, compute exactly, round once: the output lies in the enclosure widened by half a step, saturated."""

# ruff: noqa: TID251 - millions of elements from a seeded PCG64; every failure names its model and element
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pytest

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval, Operand

Array = Any  # float64 or extended precision, which numpy's types do not keep apart
Rng = np.random.Generator
LD = np.longdouble
BATCH = 500
BATCHES = 20
CODES = {"x": (-128, 127), "w": (-7, 7)}


def values(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Return float32 numbers: normal, whole, with an outlier, or constant, each case at its own scale."""
    lead = (shape[0],) + (1,) * (len(shape) - 1)
    base = rng.normal(size=shape)
    shared = np.broadcast_to(base.reshape(shape[0], -1)[:, :1].reshape(lead), shape)
    kinds = [base, base, np.rint(base * 4) / 4, np.where(rng.random(shape) < 0.1, base * 50, base), shared]
    x = np.choose(rng.integers(0, len(kinds), size=lead), kinds) * 10.0 ** rng.integers(-2, 3, size=lead)
    return x.astype(np.float32).astype(np.float64)


def parameters(rng: Rng, x: Array, qmin: int, qmax: int) -> tuple[Array, Array]:
    """Return a float32 scale and a zero point per case, from a range that fits, is too wide, or clips."""
    lead = (x.shape[0],) + (1,) * (x.ndim - 1)
    size = np.maximum(np.abs(x).reshape(x.shape[0], -1).max(axis=1).reshape(lead), 1e-6)
    span = 2 * size * rng.choice([0.3, 1.0, 1.0, 3.0], size=lead)
    scale = (span / (qmax - qmin)).astype(np.float32).astype(np.float64)
    return scale, rng.integers(qmin // 2, qmax // 2 + 1, size=lead) * 1.0


def _norm(x: Array, _: Array) -> Array:
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5)


def _softmax(x: Array, _: Array) -> Array:
    terms = np.exp(x - x.max(axis=-1, keepdims=True))
    return terms / terms.sum(axis=-1, keepdims=True)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _concat(x: Array, w: Array) -> Array:
    return np.concatenate([x, w], axis=1)


Bound = Callable[[Operand, Operand], Interval]
OPERATORS: Mapping[str, tuple[Callable[[Array, Array], Array], Bound]] = {
    "matmul": (np.matmul, lambda x, w: bounds.bilinear(lambda a, b, _: a @ b, np.matmul, x, w)),
    "mul": (np.multiply, lambda x, w: Interval.around(*x) * Interval.around(*w)),
    "add": (np.add, lambda x, w: bounds.linear(lambda x, w: x + w, lambda x, w: x + w, {"x": x, "w": w})),
    "concat": (_concat, lambda x, w: bounds.movement_of(_concat, {"x": x, "w": w})),
    "sigmoid": (lambda x, _: _sigmoid(x), lambda x, _: bounds.monotone(_sigmoid, *x)),
    "floor": (lambda x, _: np.floor(x), lambda x, _: Interval.around(*x).moved(np.floor)),
    "div": (np.divide, lambda x, w: bounds.divide(Interval.around(*x), Interval.around(*w))),
    "softmax": (_softmax, lambda x, _: bounds.softmax(*x)),
    "layer_norm": (_norm, lambda x, _: bounds.normalization(*x, -1, eps=1e-5)),
}


def _codes(x: Array, scale: Array, zero: Array, limits: tuple[int, int]) -> Array:
    return np.clip(np.rint(LD(x) / LD(scale)) + LD(zero), *limits)


@np.errstate(all="ignore")
def _shown_and_allowed(rng: Rng, name: str) -> tuple[Array, Interval, Array]:
    """Return what a correct integer implementation shows, what the enclosure allows, and its slack: error / allowed."""
    f, bound = OPERATORS[name]
    parts = {"x": values(rng, (BATCH, 4, 4)), "w": values(rng, (BATCH, 4, 4))}
    operands, read = {}, {}
    for key, v in parts.items():
        scale, zero = parameters(rng, v, *CODES[key])
        operands[key] = v, bounds.input_radius(v, scale, zero, *CODES[key], float32=False)
        read[key] = LD(scale) * (_codes(v, scale, zero, CODES[key]) - LD(zero))
    y = f(read["x"], read["w"])
    s, z = parameters(rng, np.nan_to_num(np.float64(y), posinf=1.0, neginf=-1.0), *CODES["x"])
    code = np.float64(_codes(np.nan_to_num(y, posinf=1e30, neginf=-1e30), s, z, CODES["x"]))
    low, high = (s * (end - z) for end in CODES["x"])
    shown = np.where(np.isnan(y), np.nan, s * (code - z))
    allowed = bound(operands["x"], operands["w"]).widened(s / 2).saturated(low, high)
    ideal = np.clip(f(parts["x"], parts["w"]), low, high)
    room = np.where(shown > ideal, allowed.hi - ideal, ideal - allowed.lo)
    return shown, allowed, np.abs(shown - ideal) / room


@pytest.mark.parametrize("name", OPERATORS)
def test_a_correct_implementation_is_never_outside(name: str) -> None:
    rng = np.random.Generator(np.random.PCG64(list(OPERATORS).index(name)))
    for _ in range(BATCHES):
        shown, allowed, _ = _shown_and_allowed(rng, name)
        bad = ~allowed.contains(shown) & ~np.isnan(shown)
        assert not bad.any(), np.argwhere(bad)[0]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_worst_element_uses_half_of_the_allowed_error(name: str) -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    slack = np.concatenate([_shown_and_allowed(rng, name)[2].reshape(BATCH, -1) for _ in range(4)])
    worst = np.where(np.isfinite(slack), slack, -1.0).max(axis=1)  # 0/0: no room and no error
    assert float(np.median(worst[worst >= 0])) >= 0.5


Quantizer32 = Literal["divide", "multiply", "zero point first", "down"]


def _quantized32(x: Array, s: Array, z: Array, kind: Quantizer32) -> Array:
    """Return codes before clamping, as a float32 quantizer of that kind gives them."""
    a, s32, z32 = (v.astype(np.float32) for v in (x, s, z))
    if kind == "zero point first":
        return np.rint(a / s32 + z32).astype(np.float64)
    ratio = a * (1 / s).astype(np.float32) if kind == "multiply" else a / s32
    return (np.floor if kind == "down" else np.rint)(ratio).astype(np.float64) + z


@pytest.mark.parametrize("kind", ["divide", "multiply", "zero point first", "down"])
@pytest.mark.parametrize("limits", [(-128, 127), (0, 255), (-32768, 32767), (0, 65535), (-8, 7)])
def test_the_input_radius_bounds_the_error_of_float32_quantizers(kind: Quantizer32, limits: tuple[int, int]) -> None:
    rng = np.random.Generator(np.random.PCG64(11))
    closest = 0.0
    for _ in range(BATCHES):
        x = values(rng, (BATCH, 12))
        s, z = parameters(rng, x, *limits)
        if kind == "multiply":
            s = 1 / (1 / s).astype(np.float32).astype(np.float64)
        x = np.where(rng.random(x.shape) < 0.3, s * (np.rint(x / s) + 0.5), x).astype(np.float32).astype(np.float64)
        code = np.clip(_quantized32(x, s, z, kind), *limits)
        rounding: Literal["down", "half_even"] = "down" if kind == "down" else "half_even"
        radius = bounds.input_radius(x, s, z, *limits, float32=True, rounding=rounding)
        error = np.abs(LD(s) * (LD(code) - LD(z)) - LD(x))
        assert (error <= radius).all()
        closest = max(closest, float((error / radius).max()))
    assert closest >= 0.99


def test_input_radius_without_float32_is_half_a_step_plus_clipping() -> None:
    x = np.array([0.0, 126.75, 127.0, 130.0, -129.5])
    radius = bounds.input_radius(x, 1.0, 0, -128, 127, float32=False)
    expected = np.array([0.5, 0.5, 0.5, 3.5, 2.0])
    assert (radius >= expected).all()
    assert (radius <= expected * (1 + 2.0**-40)).all()


def test_float32_adds_a_relative_error_to_the_input_radius() -> None:
    x = np.array([50.0])
    plain, rounded = (bounds.input_radius(x, 0.5, 100, -128, 127, float32=flag) for flag in (False, True))
    assert abs((rounded - plain)[0] - 2.0**-23 * (50 + 50)) <= 2.0**-40
