"""Hypotheses that no platform file can declare: float32 operations on real values, and sums times a float ratio."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from quantizer.conformance.probe.hypotheses import WIDE, Accumulator, Hypothesis
from quantizer.conformance.probe.question import Array, Question
from quantizer.core.rounding_modes import DETERMINISTIC, RoundingMode
from quantizer.core.spec import Spec
from quantizer.numerics.rounding import round_tensor

Values = Mapping[str, Any]
LANES = 8
FUSED = "inverse, fused with the zero point"
DIVISIONS = ("quotient", "inverse", FUSED)
"""How a result becomes steps of the output."""
RATIOS = ("float32", "float64", "float32 (rounded from float64)")
"""The format of a ratio and of the operations that give it."""


def _added(terms: Any) -> Any:
    return functools.reduce(lambda total, term: total + term, terms)


def _columns(x: Any) -> list[Any]:
    return [x[:, place] for place in range(x.shape[1])]


def _in_lanes(x: Any) -> Any:
    """Return sums of rows as numpy adds them: in eight lanes that are added in pairs, then the rest one by one."""
    whole = x.shape[1] // LANES * LANES
    if not whole:
        return _added(_columns(x))
    lanes = [_added(_columns(x[:, lane:whole:LANES])) for lane in range(LANES)]
    while len(lanes) > 1:
        lanes = [lanes[i] + lanes[i + 1] for i in range(0, len(lanes), 2)]
    return _added([lanes[0], *_columns(x[:, whole:])])


def _dot(a: Any, b: Any) -> Any:
    return _added([first * second for first, second in zip(_columns(a), _columns(b), strict=True)])


def _fused(v: Values) -> Any:
    """Return the bias plus each product, rounded once each."""
    total = v["bias"]
    for x, weight in zip(_columns(v["x"]), _columns(v["weight"]), strict=True):
        # float64 holds a product of two float32 numbers exactly
        total = (x.astype(np.float64) * weight + total).astype(x.dtype)
    return total


def _share(total: Any, x: Any) -> Any:
    return total / np.asarray(x.shape[1], dtype=total.dtype)


def _logistic(x: Any) -> Any:
    return (1.0 / (1.0 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


_FILTER = {
    "separate operations": lambda v: _dot(v["x"], v["weight"]) + v["bias"],
    "fused multiply-add": _fused,
}
_MEAN = {
    "one after the other": lambda v: _share(_added(_columns(v["x"])), v["x"]),
    "in 8 lanes": lambda v: _share(_in_lanes(v["x"]), v["x"]),
}
_PLAIN = "separate operations"
OPERATORS: Mapping[str, Mapping[str, Callable[[Values], Any]]] = {
    **dict.fromkeys(("conv2d", "depthwise_conv2d", "fully_connected"), _FILTER),
    **dict.fromkeys(("reduce_mean", "global_avg_pool2d", "avg_pool2d"), _MEAN),
    "reduce_sum": {
        "one after the other": lambda v: _added(_columns(v["x"])),
        "in 8 lanes": lambda v: _in_lanes(v["x"]),
    },
    "matmul": {_PLAIN: lambda v: _dot(v["a"], v["b"])},
    "add": {_PLAIN: lambda v: v["a"] + v["b"]},
    "sub": {_PLAIN: lambda v: v["a"] - v["b"]},
    "mul": {_PLAIN: lambda v: v["a"] * v["b"]},
    "relu": {_PLAIN: lambda v: np.maximum(v["x"], 0)},
    "clip": {_PLAIN: lambda v: np.clip(v["x"], np.float32(-1.0), np.float32(6.0))},
    "leaky_relu": {_PLAIN: lambda v: np.where(v["x"] < 0, v["x"] * np.float32(0.25), v["x"])},
    "sigmoid": {"a function rounded to float32": lambda v: _logistic(v["x"])},
    "tanh": {"a function rounded to float32": lambda v: np.tanh(v["x"].astype(np.float64)).astype(v["x"].dtype)},
    "quantize": {_PLAIN: lambda v: v["x"]},
}
"""Operator -> order -> its float32 operations in this order; each row is an item."""
SUMS: Mapping[str, Callable[[Values], Any]] = {
    **dict.fromkeys(("conv2d", "depthwise_conv2d", "fully_connected"), _FILTER[_PLAIN]),
    **dict.fromkeys(("reduce_mean", "global_avg_pool2d", "avg_pool2d", "reduce_sum"), lambda v: v["x"].sum(axis=1)),
    "matmul": lambda v: _dot(v["a"], v["b"]),
    "mul": lambda v: v["a"] * v["b"],
    "relu": lambda v: np.maximum(v["x"], 0),
}
"""Operator -> its sum of centred codes, which a single ratio rescales to the output."""


def programs(spec: Spec) -> Iterator[Hypothesis]:
    """Yield float programs in every rounding mode, with the zero point inside and outside the rounding.

    They are dequantize, the operator and quantize in float32, with a quotient or an inverse that may be fused with the
    zero point; and a sum times a float32 or float64 ratio.
    """
    for order, division, mode, place in itertools.product(
        OPERATORS.get(spec.op, ()), DIVISIONS, DETERMINISTIC, ("outside", "inside")
    ):
        # fused with the zero point, so it is inside the rounding
        if division == FUSED and place == "outside":
            continue
        settings = (("float32", order), ("division", division), ("rounding", mode), ("zero point", place))
        run = functools.partial(_between, order=order, division=division, mode=mode, inside=place == "inside")
        yield Hypothesis(settings, program=run)
    if spec.op in SUMS:
        for ratio, mode, place in itertools.product(RATIOS, DETERMINISTIC, ("outside", "inside")):
            yield _scaled(ratio, mode, place, WIDE)


def _scaled(ratio: str, mode: RoundingMode, place: str, accumulator: Accumulator) -> Hypothesis:
    settings: tuple[tuple[str, Any], ...] = (("sum times", ratio), ("rounding", mode), ("zero point", place))
    if accumulator != WIDE:
        settings = (*settings, ("accumulator", accumulator))
    run = functools.partial(_times_ratio, ratio=ratio, mode=mode, inside=place == "inside", accumulator=accumulator)
    return Hypothesis(settings, program=run, narrowed=functools.partial(_scaled, ratio, mode, place))


def _between(question: Question, *, order: str, division: str, mode: RoundingMode, inside: bool) -> Array:
    values = {name: _dequantized(question, name) for name in question.shown}
    with np.errstate(all="ignore"):
        result = OPERATORS[question.target.spec.op][order](values)
        scale = np.float32(float(question.output.scale))
        inverse = np.float32(1.0) / scale
        if division == FUSED:
            # one rounding to float32 after product and sum
            fused = result.astype(np.float64) * inverse + int(question.output.zero_point)
            return _coded(question, fused.astype(np.float32), mode)
        steps = result / scale if division == "quotient" else result * inverse
    return _quantized(question, steps, mode, inside=inside)


def _times_ratio(
    question: Question, *, ratio: str, mode: RoundingMode, inside: bool, accumulator: Accumulator
) -> Array:
    op = question.target.spec.op
    sums = SUMS[op]({name: _centred(question, name) for name in question.shown})
    if accumulator != WIDE:
        bits, overflow = accumulator
        half = 1 << (bits - 1)
        sums = np.clip(sums, -half, half - 1) if overflow == "saturate" else (sums + half) % (2 * half) - half
    kind: Any = np.float32 if ratio == RATIOS[0] else np.float64
    factors = [question.params(name).scale.numpy().astype(kind) for name in question.shown if name != "bias"]
    # in the ratio's own format, since its roundings are what is asked about
    number = functools.reduce(lambda a, b: a * b, factors) / kind(float(question.output.scale))
    if op in OPERATORS and OPERATORS[op] is _MEAN:
        number = number / kind(question.shown["x"].shape[1])
    if ratio == RATIOS[2]:
        kind, number = np.float32, number.astype(np.float32)
    return _quantized(question, sums.astype(kind) * number, mode, inside=inside)


def _quantized(question: Question, steps: Array, mode: RoundingMode, *, inside: bool) -> Array:
    out, zero = question.output, int(question.output.zero_point)
    if inside:
        return _coded(question, steps + np.asarray(zero, dtype=steps.dtype), mode)
    return np.asarray(np.clip(_rounded(steps, mode) + zero, out.qmin, out.qmax).astype(np.int64))


def _coded(question: Question, moved: Array, mode: RoundingMode) -> Array:
    """Return the codes of numbers to which the zero point has been added."""
    return np.asarray(np.clip(_rounded(moved, mode), question.output.qmin, question.output.qmax).astype(np.int64))


def _rounded(values: Array, mode: RoundingMode) -> Array:
    found: Array = round_tensor(torch.from_numpy(np.asarray(values, order="C")).double(), mode).numpy()
    return found


def _centred(question: Question, name: str) -> Array:
    shown, zero = question.shown[name], question.params(name).zero_point.numpy()
    return np.asarray(shown - (zero.reshape(-1, 1) if zero.ndim and shown.ndim > 1 else zero))


def _dequantized(question: Question, name: str) -> Array:
    if question.codes[name].is_floating_point():
        return np.asarray(question.shown[name])
    scale = question.params(name).scale.numpy().astype(np.float32)
    centred = _centred(question, name).astype(np.float32)
    return np.asarray(centred * (scale.reshape(-1, 1) if scale.ndim and centred.ndim > 1 else scale))
