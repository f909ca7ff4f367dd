"""The enclosures are no wider than the inputs force: their worst corner reaches 99 % of them."""

# ruff: noqa: TID251 - millions of elements from a seeded PCG64; every failure names its model and element
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval

Array = Any
Reached = tuple[Interval, list[Array]]
"""An enclosure, and outputs at the corners that reach its ends."""
CASES = 200
ENOUGH = 0.99


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _inputs(seed: int, *shape: int, step: float = 0.01) -> tuple[Array, Array]:
    rng = _generator(seed)
    return rng.normal(size=(CASES, *shape)), step * rng.random((CASES, *shape))


def _linear() -> Reached:
    (x, dx), (y, dy) = _inputs(1, 6, step=3.0), _inputs(2, 6, step=3.0)
    found = bounds.linear(
        lambda x, y: (2 * x - y).sum(axis=1),
        lambda x, y: (2 * x + y).sum(axis=1),
        {"x": (x, dx), "y": (y, dy)},
    )
    return found, [(2 * (x + s * dx) - (y - s * dy)).sum(axis=1) for s in (-1, 1)]


def _dot(x: Array, w: Array, b: Array | None) -> Array:
    return (x * w).sum(axis=1) + (0 if b is None else b)


def _bilinear_positive() -> Reached:
    (x, dx), (w, dw), (b, db) = _inputs(3, 6, step=0.5), _inputs(4, 6, step=0.5), _inputs(5, step=0.5)
    x, w = np.abs(x) + 0.5, np.abs(w) + 0.5
    found = bounds.bilinear(_dot, lambda x, w: _dot(x, w, None), (x, dx), (w, dw), (b, db))
    # the upper end is exact; the lower end may differ by the products of two radii, which only the upper end reaches
    top = _dot(x + dx, w + dw, b + db)
    return Interval(_dot(x, w, b), found.hi), [_dot(x, w, b), top]


def _bilinear_small_radii() -> Reached:
    (x, dx), (w, dw), (b, db) = _inputs(3, 6, step=1e-4), _inputs(4, 6, step=1e-4), _inputs(5, step=1e-4)
    found = bounds.bilinear(_dot, lambda x, w: _dot(x, w, None), (x, dx), (w, dw), (b, db))
    signs = np.sign(w), np.sign(x)
    return found, [_dot(x + s * signs[0] * dx, w + s * signs[1] * dw, b + s * db) for s in (-1, 1)]


def _mul() -> Reached:
    (x, dx), (w, dw) = _inputs(3, 6, step=3.0), _inputs(4, 6, step=3.0)
    found = Interval.around(x, dx) * Interval.around(w, dw)
    return found, [(x + s * dx) * (w + t * dw) for s in (-1, 1) for t in (-1, 1)]


def _monotone() -> Reached:
    x, dx = _inputs(6, 6, step=3.0)
    return bounds.monotone(np.tanh, x, dx), [np.tanh(x - dx), np.tanh(x + dx)]


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _piecewise() -> Reached:
    x, dx = _inputs(7, 6, step=3.0)
    point = -1.2784645427610738
    found = bounds.piecewise_monotone(_silu, x, dx, [point])
    return found, [_silu(x - dx), _silu(x + dx), _silu(np.clip(point, x - dx, x + dx))]


def _sine() -> Reached:
    x, dx = _inputs(7, 6, step=4.0)
    box = Interval.around(40 * x, dx)
    turns = [bounds.critical_points_between(box.lo, box.hi, f, 2 * math.pi) for f in (math.pi / 2, -math.pi / 2)]
    found = bounds.piecewise_monotone(np.sin, 40 * x, dx, turns)
    return found, [np.sin(40 * x + t * dx) for t in np.linspace(-1, 1, 401)]


def _poles(f: Callable[[Array], Array], bound: Callable[[Interval], Interval]) -> Reached:
    x, dx = _inputs(8, 6, step=0.3)
    x = np.abs(x) + 0.4
    return bound(Interval.around(x, dx)), [f(x - dx), f(x + dx)]


def _divide() -> Reached:
    (x, dx), (y, dy) = _inputs(9, 6, step=3.0), _inputs(10, 6, step=0.3)
    y = np.sign(y) * (np.abs(y) + 0.4)
    found = bounds.divide(Interval.around(x, dx), Interval.around(y, dy))
    return found, [(x + s * dx) / (y + t * dy) for s in (-1, 1) for t in (-1, 1)]


def _power() -> Reached:
    (x, dx), (y, dy) = _inputs(9, 6, step=0.3), _inputs(10, 6, step=2.0)
    x = np.abs(x) + 0.4
    found = bounds.power(Interval.around(x, dx), Interval.around(y, dy))
    return found, [(x + s * dx) ** (y + t * dy) for s in (-1, 1) for t in (-1, 1)]


def _whole_power() -> Reached:
    x, dx = _inputs(9, 6, step=2.0)
    n = np.broadcast_to(np.array([1.0, 2.0, 3.0, 4.0, 0.0, 2.0]), x.shape)
    found = bounds.power(Interval.around(x, dx), Interval.exactly(n))
    return found, [(x + t * dx) ** n for t in np.linspace(-1, 1, 401)]


def _softmax() -> Reached:
    x, dx = _inputs(11, 7, step=1.0)
    found, outputs = bounds.softmax(x, dx), []
    for i in range(7):
        for sign in (-1.0, 1.0):
            terms = np.exp(x + dx * np.where(np.arange(7) == i, sign, -sign))
            outputs.append(
                np.where(np.arange(7) == i, terms / terms.sum(axis=1, keepdims=True), found.lo / 2 + found.hi / 2)
            )
    return found, outputs


def _resize() -> Reached:
    x, dx = _inputs(12, 4, step=1.0)
    cubic = np.array([[-0.1, 0.8, 0.4, -0.1], [0.0, -0.1, 0.6, 0.5]])
    found = bounds.resize_linear(x, dx, {1: cubic})
    return found, [np.einsum("oi,boi->bo", cubic, x[:, None] + s * dx[:, None] * np.sign(cubic)) for s in (-1, 1)]


def _normal(x: Array, eps: float) -> Array:
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps)


def _layer_norm() -> Reached:
    """To first order in the radius the slopes are exact: each element at its own steepest corner."""
    n, eps = 6, 1e-3
    x, dx = _inputs(13, n, step=1e-5)
    found, y, outputs = bounds.normalization(x, dx, 1, eps=eps), _normal(x, eps), []
    for i in range(n):
        own = np.arange(n) == i
        slope = np.sign(own - 1 / n - y[:, i : i + 1] * y / n)
        outputs += [np.where(own, _normal(x + s * dx * slope, eps), y) for s in (-1, 1)]
    return found, outputs


def _rms_norm() -> Reached:
    n, eps = 6, 1e-3
    x, dx = _inputs(14, n, step=1.5)
    found, outputs = bounds.normalization(x, dx, (1,), eps=eps, centred=False), []
    least = np.sign(x) * np.maximum(np.abs(x) - dx, 0)
    most = np.sign(x) * (np.abs(x) + dx)
    middle = found.lo / 2 + found.hi / 2
    for i in range(n):
        own = np.arange(n) == i
        for end in (x - dx, x + dx):
            for rest in (least, most):
                line = np.where(own, end, rest)
                y = line / np.sqrt((line * line).mean(axis=1, keepdims=True) + eps)
                outputs.append(np.where(own, y, middle))
    return found, outputs


def _layer_norm_of_two() -> Reached:
    """Two elements: c_1 = -c_0, so that the value rises in c_0 alone; the range is exact for any radius."""
    x, dx = _inputs(15, 2, step=3.0)
    found = bounds.normalization(x, dx, 1, eps=0.3)
    return found, [_normal(x + dx * np.array([s, -s]), 0.3) for s in (-1, 1)]


MODELS: dict[str, Callable[[], Reached]] = {
    "linear": _linear,
    "bilinear, positive": _bilinear_positive,
    "bilinear, small radii": _bilinear_small_radii,
    "mul": _mul,
    "monotone": _monotone,
    "piecewise_monotone": _piecewise,
    "sine": _sine,
    "reciprocal": lambda: _poles(lambda x: 1 / x, bounds.reciprocal),
    "rsqrt": lambda: _poles(lambda x: 1 / np.sqrt(x), bounds.rsqrt),
    "sqrt": lambda: _poles(np.sqrt, bounds.sqrt),
    "log": lambda: _poles(np.log, bounds.log),
    "tan": lambda: _poles(np.tan, bounds.tan),
    "divide": _divide,
    "power": _power,
    "whole power": _whole_power,
    "softmax": _softmax,
    "resize": _resize,
    "layer_norm": _layer_norm,
    "layer_norm of two": _layer_norm_of_two,
    "rms_norm": _rms_norm,
}


def _used(enclosure: Interval, outputs: list[Array]) -> Array:
    """Return the part of each element's enclosure that the outputs span."""
    spans = np.maximum.reduce(outputs) - np.minimum.reduce(outputs)
    width = enclosure.hi - enclosure.lo
    return np.where(np.isfinite(width) & (width > 2.0**-40), spans / width, 1.0)


@pytest.mark.parametrize("model", MODELS)
@np.errstate(all="ignore")
def test_the_worst_corner_reaches_the_enclosure(model: str) -> None:
    enclosure, outputs = MODELS[model]()
    assert float(_used(enclosure, outputs).min()) >= ENOUGH
    assert np.mean(np.isfinite(enclosure.hi - enclosure.lo)) >= 0.5


@pytest.mark.parametrize("model", MODELS)
@np.errstate(all="ignore")
def test_an_enclosure_twice_as_wide_is_noticed(model: str) -> None:
    enclosure, outputs = MODELS[model]()
    half = np.where(np.isfinite(enclosure.hi - enclosure.lo), (enclosure.hi - enclosure.lo) / 2, 0)
    assert float(_used(enclosure.widened(half), outputs).min()) < ENOUGH


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("step", [1e-3, 0.3, 2.0])
def test_softmax_bounds_equal_the_closed_form(step: float, uneven: bool) -> None:
    x, dx = _inputs(17, 5, step=step)
    dx = dx if uneven else np.full_like(dx, step)
    found, y = bounds.softmax(x, dx), np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    factor, own = np.exp(2 * dx.max(axis=1, keepdims=True)), 2.0**-40
    low, high = y / (y + (1 - y) * factor), y / (y + (1 - y) / factor)
    assert (found.lo >= low - own).all()
    assert (found.hi <= high + own).all()
    if not uneven:
        assert (found.lo <= low + own).all()
        assert (found.hi >= high - own).all()


@pytest.mark.parametrize("n", [2, 3, 8, 32])
@pytest.mark.parametrize("d", [1e-4, 0.02, 0.5, 4.0])
@np.errstate(all="ignore")
def test_layer_norm_bounds_are_within_the_closed_form(n: int, d: float) -> None:
    x, _ = _inputs(n, n)
    eps = 1e-5
    found, y = bounds.normalization(x, np.full(x.shape, d), 1, eps=eps), _normal(x, eps)
    sigma = np.sqrt(x.var(axis=1, keepdims=True) + eps)
    change = np.where(sigma > d, (2 * d * (1 - 1 / n) + np.abs(y) * d) / (sigma - d), np.inf)
    limit, own = math.sqrt(n - 1), 2.0**-40
    assert (found.hi <= np.minimum(y + change, limit) + own * (1 + change)).all()
    assert (found.lo >= np.maximum(y - change, -limit) - own * (1 + change)).all()


@pytest.mark.parametrize("centred", [False, True])
def test_normalization_encloses_values_whose_squares_underflow(centred: bool) -> None:
    x, _ = _inputs(16, 6)
    found = bounds.normalization(x * 1e-170, x * 0, 1, eps=0.0, centred=centred)
    y = x - x.mean(axis=1, keepdims=True) if centred else x
    assert found.contains(y / np.sqrt((y * y).mean(axis=1, keepdims=True))).all()


def test_normalization_enclosure_stays_narrow_if_a_deviation_changes_sign() -> None:
    found = bounds.normalization(np.array([[1.4, 0.4, -1.5]]), np.ones((1, 3)), 1, eps=1e-5)
    # deviation 1.3 - 4/3 over a spread of sqrt(4.34/3) - 1: the element alone would reach -1.4
    assert found.lo[0, 0] >= (1.3 - 4 / 3) / (math.sqrt(4.34 / 3) - 1) - 2.0**-40


@np.errstate(all="ignore")
def test_movement_of_exact_inputs_is_exact() -> None:
    x, _ = _inputs(20, 6)
    for found in (
        Interval.around(x, np.zeros(x.shape)).moved(np.transpose),
        bounds.resize_nearest(x, x * 0, {1: np.arange(6)}),
    ):
        assert (found.lo == found.hi).all()


POLES: dict[str, tuple[Callable[[Interval], Interval], float, float]] = {
    "reciprocal": (bounds.reciprocal, -1.0, 1.0),
    "reciprocal at the end": (bounds.reciprocal, 0.0, 1.0),
    "rsqrt": (bounds.rsqrt, -1.0, 1.0),
    "log": (bounds.log, -1.0, 1.0),
    "tan": (bounds.tan, 1.5, 1.6),
    "tan, far apart": (bounds.tan, 0.0, 9.0),
    "divide": (lambda x: bounds.divide(Interval.exactly(np.ones(1)), x), -1.0, 1.0),
    "negative power": (lambda x: bounds.power(x, Interval.exactly(np.full(1, -2.0))), -1.0, 1.0),
    "root of a negative": (lambda x: bounds.power(x, Interval.exactly(np.full(1, 0.5))), -1.0, 1.0),
    "unsure power of a negative": (lambda x: bounds.power(x, Interval.around(np.full(1, 2.0), 0.5)), -1.0, 1.0),
}


@pytest.mark.parametrize("name", POLES)
def test_a_pole_inside_gives_an_infinite_enclosure(name: str) -> None:
    bound, lo, hi = POLES[name]
    found = bound(Interval(np.array([lo]), np.array([hi])))
    assert found.lo[0] == -np.inf
    assert found.hi[0] == np.inf
