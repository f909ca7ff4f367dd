"""Evaluates expressions of declared stages in intervals (rounded outward), and exactly in rationals where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import torch

from quantizer.conformance.bounds.interval import (
    ON_THE_WAY,
    ArrayFunction,
    FloatArray,
    Interval,
    gamma,
    outward,
)
from quantizer.conformance.bounds.monotone import piecewise_monotone
from quantizer.conformance.bounds.poles import divide, log, sqrt
from quantizer.core.real_expressions import Algebra, RealExpression, evaluate

SILU_TURNS = -1.2784645427610738  # the minimum of x / (1 + exp(-x)), where 1 + exp(-x) + x * exp(-x) is 0
GELU_TURNS = -0.7517915246935645
"""The inputs at which silu and gelu have their minimum."""


def enclosed(expression: RealExpression, operands: Mapping[str, Interval], numbers: Mapping[str, float]) -> Interval:
    """Return an interval that holds the value of *expression* for all operands in their intervals."""
    return evaluate(expression, operands, numbers, _INTERVALS)


def exact_value(expression: RealExpression, operands: Mapping[str, Fraction], numbers: Mapping[str, float]) -> Fraction:
    """Return the value of a rational expression of one element's operands."""
    return evaluate(expression, operands, numbers, _RATIONALS)


def _number(value: float) -> Interval:
    return Interval.exactly(np.asarray(value))


def _apply(name: str, x: Interval) -> Interval:
    if name in ("log", "sqrt"):
        # outward rounding may leave the domain of these functions
        return (log if name == "log" else sqrt)(Interval(np.minimum(np.maximum(x.lo, 0.0), x.hi), x.hi))
    if name == "relu":
        return x.moved(lambda end: np.maximum(end, 0.0))
    function, turns, magnitude = _FUNCTIONS[name]
    # equal ends stay as they are: infinity minus itself is NaN
    middle = np.where(x.lo == x.hi, x.lo, (x.lo + x.hi) / 2)
    size = np.maximum(np.abs(x.lo), np.abs(x.hi)) if magnitude else 0.0
    return piecewise_monotone(function, middle, np.where(x.lo == x.hi, 0.0, (x.hi - x.lo) / 2), turns, magnitude=size)


def _of_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> ArrayFunction:
    def run(x: FloatArray) -> FloatArray:
        return np.asarray(function(torch.from_numpy(np.ascontiguousarray(x))).numpy(), np.float64).reshape(np.shape(x))

    return run


_FUNCTIONS: Mapping[str, tuple[ArrayFunction, tuple[float, ...], bool]] = {
    "abs": (np.abs, (0.0,), False),
    "erf": (_of_torch(torch.erf), (), False),
    "exp": (np.exp, (), False),
    "gelu": (_of_torch(torch.nn.functional.gelu), (GELU_TURNS,), True),
    "sigmoid": (_of_torch(torch.sigmoid), (), False),
    "silu": (_of_torch(torch.nn.functional.silu), (SILU_TURNS,), False),
    "square": (np.square, (0.0,), False),
    "tanh": (np.tanh, (), False),
}
"""Name -> the function in float64, its extrema, and whether it subtracts numbers as large as its operand."""


def _fold(name: str, x: Interval, axis: int) -> Interval:
    """Return the sum, mean or largest element along *axis*; a sum in any order errs by at most gamma_n * sum |x|."""
    if name == "greatest":
        return x.moved(lambda end: end.max(axis=axis, keepdims=True))
    count = x.shape[axis]
    size = np.maximum(np.abs(x.lo), np.abs(x.hi)).sum(axis=axis, keepdims=True)
    lost = gamma(count + 1) * np.maximum(size, ON_THE_WAY)
    total = outward(x.lo.sum(axis=axis, keepdims=True), x.hi.sum(axis=axis, keepdims=True), lost)
    return total if name == "sum" else divide(total, _number(count))


_INTERVALS = Algebra(
    _number,
    {
        "+": Interval.__add__,
        "-": Interval.__sub__,
        "*": Interval.__mul__,
        "/": divide,
        "max": lambda a, b: Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi)),
        "min": lambda a, b: Interval(np.minimum(a.lo, b.lo), np.minimum(a.hi, b.hi)),
    },
    _apply,
    _fold,
)


def _no_function(name: str, value: Fraction, axis: int = 0) -> Fraction:
    raise ValueError(f"{name} of {value} along {axis} is not rational")


_RATIONALS: Algebra[Fraction] = Algebra(
    lambda value: Fraction(value) if math.isfinite(value) else Fraction(0),
    {
        "+": Fraction.__add__,
        "-": Fraction.__sub__,
        "*": Fraction.__mul__,
        "/": Fraction.__truediv__,
        "max": max,
        "min": min,
    },
    _no_function,
    _no_function,
)
