"""Element by element: arithmetic with numpy's broadcasting, comparisons, logic, functions of one operand."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import Ours, kernel, mapped

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Integer types with few torch operations; numpy computes on them."""
LARGEST_EXACT = 2.0**24
"""float32 represents every whole number up to this one."""
Binary = Callable[[Any, Any], Any]


def by_numpy(function: Callable[..., Any], *operands: Tensor) -> Tensor:
    """Return the result of a numpy function on integers, in numpy's result type."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(function(*(values.numpy() for values in operands))))


def _same_type(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise UnsupportedError(f"operands of {a.dtype} and {b.dtype}: must be of one type.")


def _binary(name: str, ours: str, function: Binary) -> None:
    @mapped(name)
    def find(a: Tensor, b: Tensor) -> Ours | None:
        both = a.is_floating_point() and b.is_floating_point() and a.dtype == b.dtype
        return Ours(ours, {"a": a, "b": b}, {}) if both and a.numel() and b.numel() else None

    @kernel(name)
    def compute(a: Tensor, b: Tensor) -> Tensor:
        _same_type(a, b)
        return by_numpy(function, a, b) if a.dtype in UNSIGNED else torch.as_tensor(function(a, b))


for _name, _ours, _function in (
    ("Add", "add", lambda a, b: a + b),
    ("Sub", "sub", lambda a, b: a - b),
    ("Mul", "mul", lambda a, b: a * b),
):
    _binary(_name, _ours, _function)


@mapped("Div")
def div(a: Tensor, b: Tensor) -> Ours | None:
    """Map to the registry's div, of floats."""
    _same_type(a, b)
    return Ours("div", {"a": a, "b": b}, {}) if a.is_floating_point() and a.numel() and b.numel() else None


@kernel("Div")
def div_of_integers(a: Tensor, b: Tensor) -> Tensor:
    """Divide; integers are truncated towards zero, a zero divisor of integers is refused."""
    if a.is_floating_point():
        return a / b
    _refuse_zero(b)
    return by_numpy(np.floor_divide, a, b) if a.dtype in UNSIGNED else torch.div(a, b, rounding_mode="trunc")


@kernel("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int) -> Tensor:
    """Return the remainder with the sign of the divisor; with fmod, the sign of the dividend."""
    _same_type(a, b)
    exact = np.fmod if fmod else np.mod
    if a.dtype == torch.bfloat16:
        return by_numpy(exact, a.float(), b.float()).to(a.dtype)
    if a.is_floating_point():
        return by_numpy(exact, a, b)  # torch's vectorized kernels treat a subnormal divisor as 0
    _refuse_zero(b)
    if a.dtype in UNSIGNED:
        return by_numpy(exact, a, b)
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def _refuse_zero(divisor: Tensor) -> None:
    if not bool((divisor.to(torch.int64) if divisor.dtype in UNSIGNED else divisor).all()):
        raise UnsupportedError("an integer divisor is zero: the standard does not say what that gives.")


@mapped("Pow")
def power_of_one_exponent(x: Tensor, y: Tensor) -> Ours | None:
    """Map to the registry's power, where the exponent is one number above 0."""
    fits = x.is_floating_point() and x.dim() and x.numel() and y.numel() == 1 and y.dim() <= x.dim()
    exponent = float(y) if fits else 0.0
    return Ours("power", {"x": x}, {"exponent": exponent}) if 0 < exponent < LARGEST_EXACT else None


@kernel("Pow")
def power(x: Tensor, y: Tensor) -> Tensor:
    """Return the power in the base's type; integer powers of integers are exact."""
    if x.is_floating_point() and y.is_floating_point():
        return torch.pow(x, y).to(x.dtype)
    if x.is_floating_point():  # a float cannot hold every integer, so the exponent itself decides the sign
        exponent = y.to(torch.int64)
        magnitude = torch.pow(x.double().abs(), exponent.double())
        return torch.where(torch.signbit(x) & (exponent % 2 != 0), -magnitude, magnitude).to(x.dtype)
    if y.is_floating_point():
        return by_numpy(lambda a, b: np.power(a, b).astype(a.dtype), x, y)
    # the result would be a fraction
    if y.dtype not in (torch.uint8, *UNSIGNED) and bool((y < 0).any()):
        raise UnsupportedError("Pow of integers with a negative exponent: must be floats.")
    # in the base's type: exact, or wrapping
    return by_numpy(lambda a, b: np.power(a, b.astype(a.dtype)), x, y)


def _chain(name: str, ours: str | None, function: Binary, in_numpy: Binary, *, widens: bool = False) -> None:
    @mapped(name)
    def find(*operands: Tensor) -> Ours | None:
        fits = ours is not None and len(operands) == 2 and all(v.is_floating_point() and v.numel() for v in operands)
        return Ours(ours, dict(zip("ab", operands, strict=True)), {}) if fits and ours else None

    @kernel(name, widens=widens)
    def compute(*operands: Tensor) -> Tensor:
        for other in operands[1:]:
            _same_type(operands[0], other)
        if operands[0].dtype in UNSIGNED:
            return reduce(lambda a, b: by_numpy(in_numpy, a, b), operands)
        return reduce(function, operands)


_chain("Max", "maximum", torch.maximum, np.maximum)
_chain("Min", "minimum", torch.minimum, np.minimum)
_chain("Sum", None, torch.add, np.add, widens=True)


@kernel("Mean", widens=True)
def mean(*operands: Tensor) -> Tensor:
    """Return the mean of several operands."""
    return reduce(torch.add, operands) / len(operands)


def _compare(
    name: str, function: Callable[[Tensor, Tensor], Tensor], in_numpy: Binary, ours: str | None = None
) -> None:
    @mapped(name)
    def find(a: Tensor, b: Tensor) -> Ours | None:
        fits = ours is not None and a.is_floating_point() and a.dtype == b.dtype and a.numel() and b.numel()
        return Ours(ours, {"a": a, "b": b}, {}) if fits and ours else None

    @kernel(name)
    def compute(a: Tensor, b: Tensor) -> Tensor:
        _same_type(a, b)
        return by_numpy(in_numpy, a, b) if a.dtype in UNSIGNED else function(a, b)


_compare("Equal", torch.eq, np.equal, "equal")
_compare("Greater", torch.gt, np.greater, "greater")
_compare("Less", torch.lt, np.less, "less")
_compare("GreaterOrEqual", torch.ge, np.greater_equal)
_compare("LessOrEqual", torch.le, np.less_equal)
_compare("And", torch.logical_and, np.logical_and)
_compare("Or", torch.logical_or, np.logical_or)
_compare("Xor", torch.logical_xor, np.logical_xor)


@kernel("Not")
def logical_not(x: Tensor) -> Tensor:
    """Negate each bool."""
    return torch.logical_not(x)


@mapped("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Ours | None:
    """Map to the registry's where, on floats."""
    fits = x.is_floating_point() and x.dtype == y.dtype and condition.numel() and x.numel() and y.numel()
    return Ours("where", {"a": x, "b": y, "condition": condition}, {}) if fits else None


@kernel("Where")
def where_of_any(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Take from x where the condition holds, from y elsewhere."""
    _same_type(x, y)
    return by_numpy(np.where, condition, x, y) if x.dtype in UNSIGNED else torch.where(condition, x, y)


def _exactly(function: Callable[[Any], Any], x: Tensor) -> Tensor:
    """Return a function of float64, rounded to the type of x: torch's cosh overflows too early."""
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.asarray(function(x.double().numpy()))).to(x.dtype)


def _unary(
    name: str,
    function: Callable[[Tensor], Tensor],
    in_numpy: Callable[[Any], Any] | None = None,
    ours: str | None = None,
) -> None:
    @mapped(name)
    def find(x: Tensor) -> Ours | None:
        return Ours(ours, {"x": x}, {}) if ours and x.is_floating_point() and x.dim() and x.numel() else None

    @kernel(name)
    def compute(x: Tensor) -> Tensor:
        if x.dtype in UNSIGNED:
            if in_numpy is None:
                raise UnsupportedError(f"{name} of {x.dtype}: no kernel takes this format.")
            return by_numpy(in_numpy, x)
        return function(x)


_unary("Abs", torch.abs, lambda x: x, ours="abs")
_unary("Neg", torch.neg, ours="negative")
# torch's sign of NaN is 0
_unary("Sign", lambda x: torch.where(x.isnan(), x, torch.sign(x)), np.sign, ours="sign")
_unary("Exp", torch.exp, ours="exp")
_unary("Log", torch.log, ours="log")
_unary("Sqrt", torch.sqrt, ours="sqrt")
_unary("Reciprocal", torch.reciprocal, ours="reciprocal")
_unary("Floor", torch.floor, ours="floor")
_unary("Ceil", torch.ceil, ours="ceil")
_unary("Round", torch.round, ours="round")
_unary("Erf", lambda x: torch.erf(x) if x.is_floating_point() else torch.erf(x.double()).to(x.dtype), ours="erf")
_unary("Sin", torch.sin, ours="sine")
_unary("Cos", torch.cos, ours="cosine")
_unary("Tan", torch.tan, ours="tan")
_unary("Acos", torch.acos)
_unary("Acosh", torch.acosh)
_unary("Asin", torch.asin)
_unary("Asinh", torch.asinh)
_unary("Atan", torch.atan, ours="atan")
_unary("Atanh", torch.atanh)
_unary("Sinh", lambda x: _exactly(np.sinh, x))
_unary("Cosh", lambda x: _exactly(np.cosh, x))
_unary("Identity", lambda x: x, lambda x: x)
