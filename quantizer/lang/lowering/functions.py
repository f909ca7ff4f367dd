"""Functions of one operand: on real numbers, or on codes through their scales; also tables from codes to codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.lang.lowering.rounding import rounded

PLAIN = {
    "Abs": "Abs",
    "Ceil": "Ceil",
    "Floor": "Floor",
    "Sin": "Sin",
    "Cos": "Cos",
    "Tan": "Tan",
    "Sinh": "Sinh",
    "Cosh": "Cosh",
    "Arccos": "Acos",
    "Arctanh": "Atanh",
    "Exp": "Exp",
    "Erf": "Erf",
    "Sign": "Sign",
    "Tanh": "Tanh",
    "HardSwish": "HardSwish",
    "Mish": "Mish",
}
"""Top's name -> ONNX's name, for operators without attributes."""
LIMITED = ("Log", "Sqrt", "Rsqrt")
"""Functions that are undefined for some numbers; if the result must be a code, it is 0 there."""


def _mode(c: Call) -> str:
    return str(c.node.attrs.get("round_mode", "HalfAwayFromZero"))


def _function(*names: str) -> Callable[[Callable[[Call, Value], Value]], Callable[[Call, Value], Value]]:
    """Register a function of real numbers as the lowering of Top operators."""

    def register(function: Callable[[Call, Value], Value]) -> Callable[[Call, Value], Value]:
        @lowers(*names)
        def lowered(c: Call) -> Value:
            return c.made(function(c, c.real()), mode=_mode(c))

        return function

    return register


@_function(*PLAIN)
def plain(c: Call, x: Value) -> Value:
    """Emit the operator of ONNX that computes the same."""
    return c.e.op(PLAIN[c.node.op.removeprefix("top.")], x)


@_function("Relu")
def relu(c: Call, x: Value) -> Value:
    """Clip below at 0, and above at a positive limit."""
    limit = c.attr("relu_limit")
    return c.e.op("Relu", x) if limit <= 0 else c.e.op("Clip", x, 0.0, float(limit))


@_function("LeakyRelu")
def leaky_relu(c: Call, x: Value) -> Value:
    """Return alpha * x below 0, else x."""
    return c.e.op("LeakyRelu", x, alpha=float(c.attr("alpha")))


@_function("Elu")
def elu(c: Call, x: Value) -> Value:
    """Return alpha * (exp(x) - 1) below 0, else x."""
    return c.e.op("Elu", x, alpha=float(c.attr("alpha")))


@_function("HardSigmoid")
def hard_sigmoid(c: Call, x: Value) -> Value:
    """Return alpha * x + beta, clipped to [0, 1]."""
    return c.e.op("HardSigmoid", x, alpha=float(c.attr("alpha")), beta=float(c.attr("beta")))


@_function("Sigmoid")
def sigmoid(c: Call, x: Value) -> Value:
    """Return the sigmoid times scale, plus bias; with log the logarithm of the sigmoid, which is -softplus(-x)."""
    if c.attr("log"):
        return c.e.op("Neg", c.e.op("Softplus", c.e.op("Neg", x)))
    y = c.e.op("Sigmoid", x)
    y = y if c.attr("scale") == 1 else c.e.op("Mul", y, float(c.attr("scale")))
    return y if c.attr("bias") == 0 else c.e.op("Add", y, float(c.attr("bias")))


@_function("SiLU")
def silu(c: Call, x: Value) -> Value:
    """Return x * sigmoid(x)."""
    return c.e.op("Mul", x, c.e.op("Sigmoid", x))


@_function("Swish")
def swish(c: Call, x: Value) -> Value:
    """Return x / (1 + exp(-beta * x)), computed in float64 and rounded once.

    So does the simulator, whose beta is a double. In float32 the last bit would differ, and with it a result that is
    truncated (Down).
    """
    wide = c.e.cast(x, "float64")
    powers = c.e.op("Exp", c.e.op("Mul", c.e.op("Neg", wide), float(c.attr("beta"))))
    return c.e.cast(c.e.cast(c.e.op("Div", wide, c.e.op("Add", powers, 1.0)), "float32"), x.dtype)


@_function("GELU")
def gelu(c: Call, x: Value) -> Value:
    """Multiply x by the normal distribution function: by erf, or approximated by tanh or by sigmoid(1.702 x)."""
    if c.attr("approx_mode") == "sigm":
        return c.e.op("Mul", x, c.e.op("Sigmoid", c.e.op("Mul", x, 1.702)))
    return c.e.op("Gelu", x, approximate="tanh" if c.attr("approx_mode") == "tanh" else "none")


@_function(*LIMITED)
def limited(c: Call, x: Value) -> Value:
    """Compute a logarithm, root or inverse root; as a code, 0 outside the function's domain."""
    # an infinite result is no NaN: it saturates to the first or the last code
    y = c.e.op("Log", x) if c.node.op == "top.Log" else c.e.op("Sqrt", x)
    y = c.e.op("Reciprocal", y) if c.node.op == "top.Rsqrt" else y
    if not c.outputs[0].dtype.is_integer:
        return y
    # NaN alone does not equal itself
    return c.e.op("Where", c.e.op("Equal", y, y), y, c.e.constant(torch.tensor(0.0)))


@_function("Round")
def to_whole(c: Call, x: Value) -> Value:
    """Return the nearest whole number, halves away from zero, as in the simulator (std::round)."""
    return rounded(c.e, x, "HalfAwayFromZero")


@_function("Softmax")
def softmax(c: Call, x: Value) -> Value:
    """Compute the softmax along one axis, or its logarithm."""
    beta: Any = c.attr("beta")
    y = x if beta == 1 else c.e.op("Mul", x, float(beta))
    return c.e.op("LogSoftmax" if c.attr("log") else "Softmax", y, axis=c.attr("axis"))


@lowers("PRelu")
def prelu(c: Call) -> Value:
    """Return slope * x below 0, else x."""
    return c.made(c.e.op("PRelu", c.real(), c.value(1)))


@lowers("Lut")
def lut(c: Call) -> Value:
    """Look up the entry at each code; a negative code counts from the end of the table, which has 256 entries."""
    # ONNX's Gather counts a negative index from the end
    entries = c.e.op("Reshape", c.value(1), [-1], allowzero=0)
    return c.e.op("Gather", entries, c.e.cast(c.value(), "int32"), axis=0)
