"""No correct implementation leaves its enclosure: more than 100,000 generated cases, none outside.

A case is one small tensor instance of an operator. Its operands move inside their radii, at random and to corners; the
operator is then evaluated in extended precision and must lie inside, exactly.
"""

# ruff: noqa: TID251 - millions of elements from a seeded PCG64; every failure names its model and element
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval, Operand

Array = Any  # float64 or extended precision, which numpy's types do not keep apart
Rng = np.random.Generator
LD = np.longdouble
BATCH = 250


@dataclass(frozen=True)
class Trial:
    """A batch of cases: axis 0 of every array counts them."""

    operands: Mapping[str, Operand]
    enclosure: Interval
    truth: Callable[..., Array]
    corners: tuple[Mapping[str, Array], ...] = ()
    """Directions in [-1, 1] per operand that are worth trying for this operator."""
    note: str = ""


def values(rng: Rng, shape: tuple[int, ...], *, tame: bool = False) -> Array:
    """Return float64 values, each case of its own kind; *tame*: within a few units of zero."""
    lead = (shape[0],) + (1,) * (len(shape) - 1)
    base = rng.normal(size=shape)
    scale = 1.0 if tame else 10.0 ** rng.integers(-3, 4, size=lead)
    shared = np.broadcast_to(base.reshape(shape[0], -1)[:, :1].reshape(lead), shape)
    outlier = np.where(rng.random(shape) < 0.1, base * (8 if tame else 1e6), base)
    kinds = [
        base * scale,
        base * scale,
        shared * scale,
        outlier,
        np.rint(base * 3),
        rng.integers(-1, 2, size=shape) * 1.0,
        np.zeros(shape),
        base * 4 if tame else 1e8 + base,
    ]
    return np.choose(rng.integers(0, len(kinds), size=lead), kinds)


def radii(rng: Rng, x: Array, *, most: float = 5.0) -> Array:
    """Return radii >= 0: none, tiny, a quantization step, larger than the values; the same for all elements or not."""
    lead = (x.shape[0],) + (1,) * (x.ndim - 1)
    size = np.abs(x).reshape(x.shape[0], -1).max(axis=1).reshape(lead)
    size = np.where(size == 0, 1.0, size)
    factor = np.minimum(rng.choice([0.0, 1e-14, 1e-6, 2.0**-9, 2.0**-9, 0.03, 0.3, 5.0], size=lead), most)
    uneven = [np.ones(x.shape), np.ones(x.shape), rng.random(x.shape), (rng.random(x.shape) < 0.4) * 1.0]
    return size * factor * np.choose(rng.integers(0, len(uneven), size=lead), uneven)


def directions(rng: Rng, operands: Mapping[str, Operand]) -> Iterator[Mapping[str, Array]]:
    """Yield corners and inner points of each operand's box: all corners, one element against the rest, random."""
    shapes = {name: np.broadcast_shapes(np.shape(x), np.shape(dx)) for name, (x, dx) in operands.items()}
    for sign in (-1.0, 1.0):
        yield {name: np.full(shape, sign) for name, shape in shapes.items()}
        yield {
            name: np.where(np.arange(math.prod(shape)).reshape(shape) % 7 == rng.integers(7), sign, -sign)
            for name, shape in shapes.items()
        }
    yield {name: rng.choice([-1.0, 1.0], size=shape) for name, shape in shapes.items()}
    yield {name: rng.choice([-1.0, 0.0, 1.0], size=shape) for name, shape in shapes.items()}
    yield {name: rng.uniform(-1, 1, size=shape) for name, shape in shapes.items()}


def moved(operands: Mapping[str, Operand], direction: Mapping[str, Array]) -> dict[str, Array]:
    """Return the operands in extended precision, each moved inside its radius."""
    return {name: LD(x) + LD(dx) * LD(direction[name]) for name, (x, dx) in operands.items()}


@np.errstate(all="ignore")
def outside(rng: Rng, trial: Trial) -> list[str]:
    """Return a line for every direction in which some element leaves the enclosure."""
    found = []
    for direction in (*directions(rng, trial.operands), *trial.corners):
        y = trial.truth(*moved(trial.operands, direction).values())
        bad = ~trial.enclosure.contains(y) & ~np.isnan(y)
        if bad.any():
            at = tuple(int(axis[0]) for axis in np.nonzero(bad))
            lo, hi = (np.broadcast_to(end, bad.shape)[at] for end in (trial.enclosure.lo, trial.enclosure.hi))
            found.append(f"{trial.note} {at}: {y[at]!r} not in [{lo!r}, {hi!r}], {int(bad.sum())} elements")
    return found


def _movement(rng: Rng) -> Trial:
    x = values(rng, (BATCH, 3, 8))
    dx = radii(rng, x)
    if rng.random() < 0.3:
        y = values(rng, (BATCH, 3, 2))
        pair = {"x": (x, dx), "y": (y, radii(rng, y))}

        def concat(x: Array, y: Array) -> Array:
            return np.concatenate([x, y], axis=2)

        return Trial(pair, bounds.movement_of(concat, pair), concat, note="concat")
    order = rng.permutation(8)
    kinds: dict[str, Callable[[Array], Array]] = {
        "transpose": lambda x: np.swapaxes(x, 1, 2),
        "gather": lambda x: x[:, :, order],
        "pad": lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1))),
        "max_pool": lambda x: x.reshape(len(x), 3, 4, 2).max(axis=3),
        "clip": lambda x: np.clip(x, 0, 6),
        "sort": lambda x: np.sort(x, axis=2),
    }
    name = str(rng.choice(list(kinds)))
    return Trial({"x": (x, dx)}, Interval.around(x, dx).moved(kinds[name]), kinds[name], note=name)


def _linear(rng: Rng) -> Trial:
    x, y = values(rng, (BATCH, 4, 6)), values(rng, (BATCH, 4, 6))
    operands = {"x": (x, radii(rng, x)), "y": (y, radii(rng, y))}
    a, b = values(rng, (BATCH, 1, 6)), rng.normal(size=(BATCH, 4, 1))

    def weighted(x: Array, y: Array) -> Array:
        return a * x - y + b

    kinds: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
        "add": (lambda x, y: x + y, lambda x, y: x + y),
        "sub": (lambda x, y: x - y, lambda x, y: x + y),
        "weighted": (weighted, lambda x, y: np.abs(a) * x + y),
        "mean": (lambda x, y: (x + y).mean(axis=2), lambda x, y: (x + y).mean(axis=2)),
        "cumsum": (lambda x, y: np.cumsum(x - y, axis=2), lambda x, y: np.cumsum(x + y, axis=2)),
    }
    name = str(rng.choice(list(kinds)))
    f, f_abs = kinds[name]
    return Trial(operands, bounds.linear(f, f_abs, operands), f, note=name)


def _bilinear(rng: Rng) -> Trial:
    name = str(rng.choice(["matmul", "conv1d", "mul"]))
    width = int(rng.integers(1, 12))
    shapes = {"matmul": ((2, width), (width, 3), (1, 3)), "conv1d": ((2, 9), (3, 2, 3), (3, 1)), "mul": ((4, 5),) * 3}
    (x, w, b) = (values(rng, (BATCH, *shape)) for shape in shapes[name])
    operands = {key: (v, radii(rng, v)) for key, v in (("x", x), ("w", w), ("b", b))}

    def conv1d(x: Array, w: Array) -> Array:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
        return np.einsum("bcok,bpck->bpo", np.lib.stride_tricks.sliding_window_view(padded, 3, axis=2), w)

    products: dict[str, Callable[[Array, Array], Array]] = {"matmul": np.matmul, "conv1d": conv1d, "mul": np.multiply}
    product = products[name]

    def f(x: Array, w: Array, b: Array | None) -> Array:
        return product(x, w) if b is None else product(x, w) + b

    signs = {key: np.where(v < 0, -1.0, 1.0) for key, (v, _) in operands.items()}
    grown = ({"x": signs["x"], "w": signs["w"], "b": signs["b"]}, {"x": signs["x"], "w": -signs["w"], "b": -signs["b"]})
    enclosure = bounds.bilinear(f, product, operands["x"], operands["w"], operands["b"])
    if name == "mul":
        ends = {key: Interval.around(*operand) for key, operand in operands.items()}
        enclosure = enclosure.intersect(ends["x"] * ends["w"] + ends["b"])
    return Trial(operands, enclosure, f, grown, note=name)


def _piecewise_bilinear(rng: Rng) -> Trial:
    x, w = values(rng, (BATCH, 4, 5)), values(rng, (BATCH, 4, 1))
    operands = {key: (v, radii(rng, v)) for key, v in (("x", x), ("w", w))}
    point = float(rng.choice([0.0, 1.0]))

    def f(x: Array, w: Array) -> Array:
        return np.where(x < point, (x - point) * w, x - point)

    return Trial(operands, bounds.piecewise_bilinear(f, operands["x"], operands["w"], [point]), f)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _monotone(rng: Rng) -> Trial:
    x = values(rng, (BATCH, 12))
    dx = radii(rng, x)
    kinds: dict[str, tuple[Callable[[Array], Array], Array | float]] = {
        "exp": (np.exp, 0.0),
        "exp of -x": (lambda x: np.exp(-x), 0.0),
        "tanh": (np.tanh, 0.0),
        "sigmoid": (_sigmoid, 0.0),
        "1 - exp": (lambda x: 1 - np.exp(x), 1.0),
        "arctan": (np.arctan, 0.0),
        "softplus": (lambda x: np.logaddexp(0, x), 0.0),
        "cbrt": (np.cbrt, 0.0),
        "leaky": (lambda x: np.where(x > 0, x, x * 0.01), 0.0),
    }
    name = str(rng.choice(list(kinds)))
    f, magnitude = kinds[name]
    return Trial({"x": (x, dx)}, bounds.monotone(f, x, dx, magnitude=magnitude), f, note=name)


def _piecewise_monotone(rng: Rng) -> Trial:
    x = values(rng, (BATCH, 12), tame=bool(rng.random() < 0.8))
    dx = radii(rng, x)
    box = Interval.around(x, dx)

    def turns(first: float) -> Array:
        return bounds.critical_points_between(box.lo, box.hi, first, 2 * math.pi)

    kinds: dict[str, tuple[Callable[[Array], Array], list[Any]]] = {
        "abs": (np.abs, [0.0]),
        "square": (np.square, [0.0]),
        "silu": (lambda x: x * _sigmoid(x), [-1.2784645427610738]),
        "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), [-1.192431214515495]),
        "hard_swish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, [-3.0, -1.5]),
        "sin": (np.sin, [turns(math.pi / 2), turns(-math.pi / 2)]),
        "cos": (np.cos, [turns(0.0), turns(math.pi)]),
        "gelu_tanh": (_gelu_tanh, [-0.7524614220710162]),
    }
    name = str(rng.choice(list(kinds)))
    f, points = kinds[name]
    size = np.abs(x) + dx + 3 if name in ("gelu_tanh", "hard_swish") else 0.0
    return Trial({"x": (x, dx)}, bounds.piecewise_monotone(f, x, dx, points, magnitude=size), f, note=name)


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))) / 2


def _set_valued(rng: Rng) -> Trial:
    x = values(rng, (BATCH, 12))
    dx = radii(rng, x)
    f: Callable[[Array], Array] = rng.choice(np.array([np.floor, np.ceil, np.rint, np.sign, np.trunc], dtype=object))
    return Trial({"x": (x, dx)}, Interval.around(x, dx).moved(f), f, note=str(f))


def _modulo(rng: Rng) -> Trial:
    x, y = values(rng, (BATCH, 12)), values(rng, (BATCH, 12))
    y = np.where(y == 0, 3.0, y)
    operands = {"x": (x, radii(rng, x)), "y": (y, radii(rng, y) * rng.choice([0.0, 1.0], size=(BATCH, 1)))}
    truncated = bool(rng.integers(2))
    f = np.fmod if truncated else np.mod
    enclosure = bounds.modulo(Interval.around(*operands["x"]), Interval.around(*operands["y"]), truncated=truncated)
    return Trial(operands, enclosure, f, note=f"truncated={truncated}")


def _comparison(rng: Rng) -> Trial:
    a: Array
    b: Array
    a, b = values(rng, (BATCH, 12)), values(rng, (BATCH, 12))
    b = np.asarray(np.where(rng.random(b.shape) < 0.5, a, b))
    p, q = values(rng, (BATCH, 12)), values(rng, (BATCH, 12))
    operands = {key: (v, radii(rng, v)) for key, v in (("a", a), ("b", b), ("p", p), ("q", q))}
    ends = {key: Interval.around(*operand) for key, operand in operands.items()}
    name: Any = rng.choice(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
    f = getattr(np, name)
    truth = bounds.compare(name, ends["a"], ends["b"])
    if rng.integers(2):
        mask = bounds.truth_interval(truth)
        return Trial(operands, mask, lambda a, b, p, q: f(a, b).astype(float), note=str(name))
    chosen = bounds.where(truth, ends["p"], ends["q"])
    return Trial(operands, chosen, lambda a, b, p, q: np.where(f(a, b), p, q), note=f"where {name}")


def _poles(rng: Rng) -> Trial:
    x, y = values(rng, (BATCH, 12)), values(rng, (BATCH, 12), tame=True)
    positive = np.abs(x) + 1e-3
    dx, dy = radii(rng, x), radii(rng, y)
    n: Array = rng.integers(-3, 5, size=(BATCH, 12)) * 1.0
    tame = values(rng, (BATCH, 12), tame=True)
    none: Array = n * 0
    kinds: dict[str, tuple[Callable[..., Interval], Callable[..., Array], tuple[Operand, ...]]] = {
        "reciprocal": (bounds.reciprocal, lambda x: 1 / x, ((x, dx),)),
        "rsqrt": (bounds.rsqrt, lambda x: 1 / np.sqrt(x), ((positive, dx),)),
        "sqrt": (bounds.sqrt, np.sqrt, ((positive, np.minimum(dx, positive)),)),
        "log": (bounds.log, np.log, ((positive, np.minimum(dx, positive)),)),
        "divide": (bounds.divide, lambda x, y: x / y, ((x, dx), (y, dy))),
        "whole power": (bounds.power, lambda x, y: x**y, ((tame, radii(rng, tame)), (n, none))),
        "power": (bounds.power, lambda x, y: x**y, ((np.abs(tame) + 0.01, radii(rng, tame)), (y, dy))),
        "tan": (bounds.tan, np.tan, ((y, dy),)),
    }
    name = str(rng.choice(list(kinds)))
    bound, f, used = kinds[name]
    operands = dict(zip("xy", used, strict=False))
    return Trial(operands, bound(*(Interval.around(*operand) for operand in used)), f, note=name)


def _softmax(rng: Rng) -> Trial:
    n = int(rng.integers(1, 20))
    x = values(rng, (BATCH, 2, n), tame=bool(rng.random() < 0.8))
    dx = radii(rng, x)

    def f(x: Array) -> Array:
        terms = np.exp(x - x.max(axis=-1, keepdims=True))
        return terms / terms.sum(axis=-1, keepdims=True)

    own = tuple({"x": sign * np.broadcast_to(np.where(np.arange(n) == n // 2, 1.0, -1.0), x.shape)} for sign in (-1, 1))
    if rng.integers(2):
        swapped = bounds.softmax(np.swapaxes(x, 1, 2), np.swapaxes(dx, 1, 2), axis=1)
        return Trial({"x": (x, dx)}, swapped.moved(lambda end: np.swapaxes(end, 1, 2)), f, own, note=f"n={n}")
    return Trial({"x": (x, dx)}, bounds.softmax(x, dx), f, own, note=f"n={n}")


def _steepest(x: Array, eps: float, *, centred: bool) -> Iterator[Mapping[str, Array]]:
    """Yield the corners that move one normalised element the most, to first order, and those that shrink the spread."""
    n = x.shape[-1]
    c = x - x.mean(axis=-1, keepdims=True) if centred else x
    y = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps)
    for k in (0, n // 2):
        slope = (np.arange(n) == k) - (1 / n if centred else 0) - y[..., k : k + 1] * y / n
        for sign in (-1.0, 1.0):
            yield {"x": sign * np.sign(slope)}
    flip = np.where(np.arange(n) == 0, -1.0, 1.0)
    for sign in (-1.0, 1.0):
        yield {"x": sign * np.sign(c)}
        yield {"x": sign * flip * np.sign(c)}


@np.errstate(all="ignore")
def _norm(rng: Rng, *, centred: bool) -> Trial:
    n, eps = int(rng.integers(1, 20)), float(rng.choice([0.0, 1e-12, 1e-5, 1e-5, 1.0, 300.0]))
    x = values(rng, (BATCH, 2, n))
    operands = {"x": (x, radii(rng, x))}

    def plain(x: Array) -> Array:
        near = (
            x - x[..., :1]
        )  # exact where x hardly differs: extended precision alone would lose the spread of 1e8 + small
        c = near - near.mean(axis=-1, keepdims=True) if centred else x
        return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + LD(eps))

    corners = tuple(_steepest(x, eps, centred=centred))
    if rng.integers(2):
        enclosure = bounds.normalization(*operands["x"], -1, eps=eps, centred=centred)
        return Trial(operands, enclosure, plain, corners, note=f"n={n} eps={eps}")
    g, b = values(rng, (BATCH, 1, n)), values(rng, (BATCH, 1, n))
    operands |= {"g": (g, radii(rng, g)), "b": (b, radii(rng, b))}
    ends = {key: Interval.around(*operand) for key, operand in operands.items()}
    whole = tuple(corner | {"g": np.sign(g), "b": np.ones_like(b)} for corner in map(dict, corners))
    enclosure = bounds.normalization(*operands["x"], (2,), eps=eps, centred=centred, gamma=ends["g"], beta=ends["b"])
    return Trial(operands, enclosure, lambda x, g, b: plain(x) * g + b, whole, note=f"affine n={n} eps={eps}")


def _resize(rng: Rng) -> Trial:
    sizes = [(int(rng.integers(1, 7)), int(rng.integers(1, 9))) for _ in range(2)]
    x = values(rng, (BATCH, sizes[0][0], sizes[1][0]))
    operands = {"x": (x, radii(rng, x))}

    def place(size: int, out: int, kind: type[Any]) -> Array:
        return np.maximum((np.arange(out).astype(kind) + kind(0.5)) * kind(size) / kind(out) - kind(0.5), 0)

    if rng.integers(2):
        picks = [np.minimum(place(i, o, np.float64).astype(np.int64), i - 1) for i, o in sizes]
        near = bounds.resize_nearest(*operands["x"], {1: picks[0], 2: picks[1]})
        return Trial(operands, near, lambda x: x[:, picks[0]][:, :, picks[1]], note="nearest")

    def weights(size: int, out: int, kind: type[Any]) -> Array:
        return np.maximum(0, 1 - np.abs(np.minimum(place(size, out, kind), size - 1)[:, None] - np.arange(size)))

    rough, fine = ([weights(i, o, kind) for i, o in sizes] for kind in (np.float64, LD))
    enclosure = bounds.resize_linear(*operands["x"], {1: rough[0], 2: rough[1]})
    return Trial(operands, enclosure, lambda x: np.einsum("oi,bij,pj->bop", fine[0], x, fine[1]), note="linear")


def _product(rng: Rng) -> Trial:
    n = int(rng.integers(1, 9))
    x = values(rng, (BATCH, 2, n, 2), tame=bool(rng.random() < 0.8))
    dx = radii(rng, x)
    enclosure = bounds.product(x, dx, (1, 2))
    own = tuple({"x": np.broadcast_to(np.where(np.arange(n) == k, -1.0, 1.0)[:, None], x.shape)} for k in (0, n // 2))
    return Trial({"x": (x, dx)}, enclosure, lambda x: x.prod(axis=(1, 2)), (*_outermost(x), *own), note=f"n={n}")


def _euclidean(rng: Rng) -> Trial:
    n = int(rng.integers(1, 20))
    x = values(rng, (BATCH, 3, n))
    operands = {"x": (x, radii(rng, x))}

    def f(x: Array) -> Array:
        return np.sqrt((x * x).sum(axis=-1))

    return Trial(operands, bounds.euclidean(f, *operands["x"], terms=n), f, _outermost(x), note=f"n={n}")


def _outermost(x: Array) -> tuple[Mapping[str, Array], ...]:
    """Return the corners of largest and of smallest sizes."""
    return tuple({"x": sign * np.where(x < 0, -1.0, 1.0)} for sign in (-1.0, 1.0))


MODELS: dict[str, tuple[int, Callable[[Rng], Trial]]] = {
    "movement": (20_000, _movement),
    "linear": (40_000, _linear),
    "bilinear": (50_000, _bilinear),
    "piecewise_bilinear": (20_000, _piecewise_bilinear),
    "monotone": (40_000, _monotone),
    "piecewise_monotone": (40_000, _piecewise_monotone),
    "set_valued": (20_000, _set_valued),
    "modulo": (20_000, _modulo),
    "comparison": (20_000, _comparison),
    "poles": (40_000, _poles),
    "softmax": (40_000, _softmax),
    "layer_norm": (50_000, lambda rng: _norm(rng, centred=True)),
    "rms_norm": (30_000, lambda rng: _norm(rng, centred=False)),
    "resize": (20_000, _resize),
    "product": (20_000, _product),
    "euclidean": (20_000, _euclidean),
}
"""Model -> generated cases, and what generates a batch of them."""


@pytest.mark.parametrize("model", MODELS)
@np.errstate(all="ignore")
def test_correct_implementations_stay_inside(model: str) -> None:
    rng = np.random.Generator(np.random.PCG64(list(MODELS).index(model)))
    cases, batch = MODELS[model]
    ran, found = 0, []
    while ran < cases:
        trial = batch(rng)
        ran += len(trial.enclosure.lo)
        found += outside(rng, trial)
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("model", MODELS)
@np.errstate(all="ignore")
def test_an_enclosure_one_percent_too_narrow_is_violated(model: str) -> None:
    rng = np.random.Generator(np.random.PCG64(99))
    for _ in range(40):
        trial = MODELS[model][1](rng)
        lo, hi = trial.enclosure.lo, trial.enclosure.hi
        cut = np.where(np.isfinite(hi - lo), (hi - lo) * 0.005, 0.0)
        if outside(rng, replace(trial, enclosure=Interval(lo + cut, np.maximum(hi - cut, lo + cut)))):
            return
    pytest.fail("no direction of 40 batches comes within one percent of an end")


def test_more_than_100_000_cases_are_generated() -> None:
    assert sum(cases for cases, _ in MODELS.values()) >= 100_000
