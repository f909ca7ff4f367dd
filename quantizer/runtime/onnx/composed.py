"""ONNX operators as several operators of the registry, for `registry_form` where `mapped` is not enough.

A function here takes `run`, which runs and records one operator of the registry, then the operands of a kernel. It
returns its results, which come from `run` or are operands; None leaves the choice to `mapped`. ONNX graphs run on
kernels, not on these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from quantizer.runtime.onnx.activations import COERCED_UNTIL, around_zero, sliced_axis
from quantizer.runtime.onnx.kernels import Ours, axis_of, scalar
from quantizer.runtime.onnx.pools import avg_pool, max_pool
from quantizer.runtime.onnx.reductions import axes_given

F = TypeVar("F", bound=Callable[..., Any])
COMPOSED: dict[str, Callable[..., Any]] = {}


class Run(Protocol):
    """Runs one operator of the registry and notes it."""

    def __call__(self, ours: Ours) -> Tensor:
        """Return the operator's result."""

    def computed(self, value: Tensor) -> bool:
        """Return whether an operand depends on the graph's inputs."""


def composed(*names: str) -> Callable[[F], F]:
    """Register the decorated function for the ONNX operators of these names."""

    def register(function: F) -> F:
        COMPOSED.update(dict.fromkeys(names, function))
        return function

    return register


def one(run: Run, op: str, x: Tensor, **attrs: Any) -> Tensor:
    """Run an operator of one operand."""
    return run(Ours(op, {"x": x}, attrs))


def two(run: Run, op: str, a: Tensor, b: Tensor) -> Tensor:
    """Run an operator of two operands."""
    return run(Ours(op, {"a": a, "b": b}, {}))


def reshaped(run: Run, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Run a reshape if the shape changes."""
    return x if tuple(shape) == tuple(x.shape) else one(run, "reshape", x, shape=tuple(shape))


def number(value: float, like: Tensor) -> Tensor:
    """Return a constant with one element that does not change the shape of *like* when they broadcast."""
    return torch.full([1] * min(like.dim(), 1), value, dtype=like.dtype)


def floats(*operands: Tensor) -> bool:
    """Return whether operands are floats of one type, with elements."""
    return all(v.is_floating_point() and v.numel() and v.dtype == operands[0].dtype for v in operands)


@composed("Sum", "Max", "Min", "Mean")
def chained(run: Run, *operands: Tensor, op: Any) -> Tensor | None:
    """Combine operands from left to right."""
    if not floats(*operands):
        return None
    ours = {"Max": "maximum", "Min": "minimum"}.get(op.op, "add")
    total = reduce(lambda a, b: two(run, ours, a, b), operands)
    if op.op != "Mean" or len(operands) == 1:
        return total
    return two(run, "div", total, number(len(operands), total))


@composed("Pow")
def power(run: Run, x: Tensor, y: Tensor) -> Tensor | None:
    """Compute powers with the exponents -1, -1/2, 1/2, 1, 2 and 3 as products, roots and quotients."""
    exponent = scalar(y, None) if y.numel() == 1 and y.dim() <= x.dim() else None
    if not floats(x) or exponent not in (-1, -0.5, 0.5, 1, 2, 3):
        return None
    match exponent:
        case 1:
            return x
        case 2:
            return two(run, "mul", x, x)
        case 3:
            return two(run, "mul", two(run, "mul", x, x), x)
    return one(run, {-1: "reciprocal", -0.5: "rsqrt", 0.5: "sqrt"}[exponent], x)


@composed("PRelu")
def prelu(run: Run, x: Tensor, slope: Tensor) -> Tensor | None:
    """Return max(x, 0) + slopes * min(x, 0), for slopes that are computed, or that leaky_relu and prelu do not take."""
    fits = slope.dim() <= x.dim()
    if not floats(x, slope) or not fits:
        return None
    if not run.computed(slope) and (float(slope) >= 0 if slope.numel() == 1 else sliced_axis(x, slope) is not None):
        return None
    # relu(-x) = -min(x, 0)
    below = one(run, "relu", one(run, "negative", x))
    return two(run, "sub", one(run, "relu", x), two(run, "mul", below, slope))


@composed("Swish")
def swish(run: Run, x: Tensor, *, alpha: float) -> Tensor | None:
    """Multiply x by the sigmoid of alpha * x."""
    # `mapped` has silu for it
    if alpha == 1:
        return None
    return two(run, "mul", x, one(run, "sigmoid", two(run, "mul", x, number(alpha, x))))


@composed("Clip")
def clip(
    run: Run,
    x: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Tensor | None:
    """Clip by one bound, then the other, if the registry's clip does not take both."""
    first, last = scalar(low, -math.inf if min is None else min), scalar(high, math.inf if max is None else max)
    if not floats(x) or around_zero(first, last):
        return None
    if first > -math.inf:
        x = one(run, "relu", x) if first == 0 else two(run, "maximum", x, number(first, x))
    return x if last == math.inf else two(run, "minimum", x, number(last, x))


@composed("Softmax")
def softmax(run: Run, x: Tensor, *, axis: int, since: int) -> Tensor | None:
    """Compute the softmax of rows, the definition before version 13."""
    if since >= COERCED_UNTIL or not x.dim():
        return None
    first = axis + x.dim() if axis < 0 else axis
    rows = reshaped(run, x, (math.prod(x.shape[:first]), math.prod(x.shape[first:])))
    return reshaped(run, one(run, "softmax", rows, axis=-1), x.shape)


@composed("LogSoftmax")
def log_softmax(run: Run, x: Tensor, *, axis: int, since: int) -> Tensor | None:
    """Subtract the maximum, then the logarithm of the sum of exponentials."""
    last = axis_of("LogSoftmax", axis, x.dim())
    # over the last axis both definitions agree
    if since < COERCED_UNTIL and last != x.dim() - 1:
        return None
    away = two(run, "sub", x, one(run, "reduce_max", x, axes=(last,), keepdims=True))
    total = one(run, "reduce_sum", one(run, "exp", away), axes=(last,), keepdims=True)
    return two(run, "sub", away, one(run, "log", total))


@composed("Gemm")
def gemm(
    run: Run, a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Tensor | None:
    """Multiply rows and filters, with alpha in the constants; c is a bias for each column, or is added separately."""
    if not floats(a, b):
        return None
    x = one(run, "transpose", a, perm=(1, 0)) if transA else a
    if run.computed(b):
        weight = b if transB else one(run, "transpose", b, perm=(1, 0))
        product = run(Ours("fully_connected", {"x": x, "weight": weight}, {}))
        product = product if alpha == 1 else two(run, "mul", product, number(alpha, product))
    else:
        # alpha goes into the constant, which saves an operator and a rounding
        weight = (b if transB else b.mT.contiguous()) * alpha if alpha != 1 or not transB else b
        row = c is not None and not run.computed(c) and (c.dim() < 2 or c.shape[0] == 1)
        operands = {"x": x, "weight": weight}
        if row and c is not None:
            scaled = c if beta == 1 and c.shape == (weight.shape[0],) else c * beta
            operands["bias"] = scaled if scaled is c else scaled.reshape(-1).expand(weight.shape[0]).contiguous()
        product = run(Ours("fully_connected", operands, {}))
        c = None if row else c
    if c is None:
        return product
    return two(run, "add", product, c if beta == 1 else two(run, "mul", c, number(beta, c)))


@composed("MatMul")
def matmul(run: Run, a: Tensor, b: Tensor) -> Tensor | None:
    """Multiply rows and filters if the second operand is one constant matrix."""
    if not floats(a, b) or b.dim() != 2 or a.dim() < 2 or run.computed(b):
        return None
    # fully_connected takes [n, c]: leading axes become rows
    rows = reshaped(run, a, (math.prod(a.shape[:-1]), a.shape[-1]))
    product = run(Ours("fully_connected", {"x": rows, "weight": b.mT.contiguous()}, {}))
    return reshaped(run, product, (*a.shape[:-1], b.shape[1]))


def _reduction(name: str, before: str | None, after: str | None) -> None:
    @composed(name)
    def compute(
        run: Run,
        x: Tensor,
        given: Tensor | None = None,
        *,
        axes: Any = None,
        keepdims: int,
        noop_with_empty_axes: int = 0,
    ) -> Tensor | None:
        """Add magnitudes or squares, then apply a function to the sum."""
        over = axes_given(name, x, axes if given is None else given, noop_with_empty_axes)
        if not over or not floats(x):
            return None
        y = x if before is None else two(run, "mul", x, x) if before == "mul" else one(run, before, x)
        y = one(run, "reduce_sum", y, axes=over, keepdims=bool(keepdims))
        return y if after is None else one(run, after, y)


for _name, _before, _after in (
    ("ReduceL1", "abs", None),
    ("ReduceSumSquare", "mul", None),
    ("ReduceLogSum", None, "log"),
):
    _reduction(_name, _before, _after)


@composed("MaxPool", "AveragePool")
def pool1d(
    run: Run, x: Tensor, *, op: Any, auto_pad: str, kernel_shape: Sequence[int], made: int, **attrs: Any
) -> Tensor | None:
    """Compute pools of one axis as pools over images of one row."""
    if x.dim() != 3 or made > 1 or not floats(x):
        return None
    # an image of the shape [n, c, 1, length]
    image = reshaped(run, x, (x.shape[0], x.shape[1], 1, x.shape[2]))
    lists = {key: attrs.pop(key, None) for key in ("dilations", "pads", "strides")}
    pads = lists["pads"] or (0, 0)
    wide: dict[str, Any] = {
        "dilations": (1, *(lists["dilations"] or (1,))),
        "strides": (1, *(lists["strides"] or (1,))),
        "pads": (0, pads[0], 0, pads[1]),
        "kernel_shape": (1, *kernel_shape),
        "auto_pad": auto_pad,
    }
    found = max_pool(image, **wide, **attrs, made=1) if op.op == "MaxPool" else avg_pool(image, **wide, **attrs)
    if found is None:
        return None
    y = run(found)
    return reshaped(run, y, (*y.shape[:2], y.shape[3]))


@composed("InstanceNormalization")
def instance_norm(run: Run, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float) -> Tensor | None:
    """Normalise sequences as images of one row."""
    if x.dim() != 3 or epsilon <= 0 or not floats(x, scale, bias):
        return None
    image = reshaped(run, x, (*x.shape[:2], 1, x.shape[2]))
    y = run(Ours("instance_norm", {"x": image, "gamma": scale, "beta": bias}, {"epsilon": epsilon}))
    return reshaped(run, y, x.shape)


@composed("GlobalAveragePool")
def global_avg_pool(run: Run, x: Tensor) -> Tensor | None:
    """Compute a mean over all spatial axes unless there are two, for which `mapped` has a pool."""
    if x.dim() == 4 or x.dim() < 3 or not floats(x):
        return None
    return one(run, "reduce_mean", x, axes=tuple(range(2, x.dim())), keepdims=True)
