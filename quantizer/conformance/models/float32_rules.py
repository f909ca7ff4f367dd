"""Rules of the running error analysis: the float32 error of each function of torch that operator definitions call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.float_forward import TRANSCENDENTAL_ULPS
from quantizer.conformance.models.bounded_numbers import RULES, SMALLEST, Bounded, NoAnalysisError, Pair, parts, rule

Function = Callable[[Tensor], Tensor]
LIBRARY = lost(2 * TRANSCENDENTAL_ULPS)
"""The relative error of a library function."""
UNDERFLOW = 2.0**-100
CUBIC = (1.375, 4.2)
"""For cubic weights with a = -0.75: the largest sum of the weights' magnitudes, and of their slopes' magnitudes."""


def rounded(values: Tensor, radius: Tensor) -> Pair:
    """Add one float32 rounding of the number that an engine computes, which may be off by the radius already."""
    return values, radius + UNIT * (values.abs() + radius) + SMALLEST


@rule("add", "radd")
def _add(a: object, b: object, *, alpha: float = 1) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    return rounded(x + alpha * y, r + abs(alpha) * s)


@rule("sub")
def _sub(a: object, b: object) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    return rounded(x - y, r + s)


@rule("rsub")
def _rsub(a: object, b: object) -> Pair:
    return _sub(b, a)


@rule("mul", "rmul", "multiply")
def _mul(a: object, b: object) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    return rounded(x * y, x.abs() * s + y.abs() * r + r * s)


@rule("div", "truediv", "true_divide")
def _div(a: object, b: object) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    quotient = x / y
    # |(x + dx) / (y + dy) - x / y| is largest where the divisor is smallest
    apart = (r + quotient.abs() * s) / (y.abs() - s)
    return rounded(quotient, torch.where((r == 0) & (s == 0), 0.0, torch.where(y.abs() > s, apart, math.inf)))


@rule("rtruediv", "rdiv")
def _rdiv(a: object, b: object) -> Pair:
    return _div(b, a)


@rule("reciprocal")
def _reciprocal(a: object) -> Pair:
    return _div(1.0, a)


@rule("neg", "negative")
def _neg(a: object) -> Pair:
    values, radius = parts(a)
    return -values, radius


@rule("square")
def _square(a: object) -> Pair:
    return _mul(a, a)


@rule("matmul", "bmm", "mm")
def _matmul(a: object, b: object) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    return _sums(x @ y, (x.abs() + r) @ (y.abs() + s), x.abs() @ y.abs(), x.shape[-1])


@rule("rmatmul")
def _rmatmul(a: object, b: object) -> Pair:
    return _matmul(b, a)


@rule("einsum")
def _einsum(equation: str, *operands: Any) -> Pair:
    given = [parts(one) for one in (operands[0] if isinstance(operands[0], list | tuple) else operands)]
    # an einsum of ones counts the terms of each sum
    added = torch.einsum(equation, *(torch.ones_like(x) for x, _ in given))
    terms = int(added.max()) if added.numel() else 1
    largest = torch.einsum(equation, *(x.abs() + r for x, r in given))
    return _sums(
        torch.einsum(equation, *(x for x, _ in given)),
        largest,
        torch.einsum(equation, *(x.abs() for x, _ in given)),
        terms + len(given),
    )


def _sums(values: Tensor, largest: Tensor, magnitude: Tensor, terms: int) -> Pair:
    """Return sums of products with their error: that of the operands, and gamma_n times the largest magnitudes.

    *largest*: the sums of magnitudes that an engine may have; *magnitude*: those of the exact operands.
    """
    # 2**-50: the rounding of these float64 sums; SMALLEST: a product that underflows
    return values, largest - magnitude + lost(terms + 1) * largest + 2.0**-50 * magnitude + terms * SMALLEST


@rule("sum")
def _sum(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Pair:  # noqa: FBT001, FBT002 - torch's order
    values, radius = parts(x)
    dim = tuple(range(values.dim())) if dim is None else dim
    made, apart, largest = (v.sum(dim, keepdim) for v in (values, radius, values.abs() + radius))
    return made, apart + lost(max(1, values.numel() // max(1, made.numel()))) * largest


@rule("mean")
def _mean(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Pair:  # noqa: FBT001, FBT002 - torch's order
    values, _radius = parts(x)
    made = values.mean() if dim is None else values.mean(dim, keepdim)
    count = values.numel() / max(1, made.numel())
    return rounded(made, _sum(x, dim, keepdim)[1] / count)


@rule("cumsum")
def _cumsum(x: Any, dim: int, **_: Any) -> Pair:
    values, radius = parts(x)
    return values.cumsum(dim), radius.cumsum(dim) + lost(values.shape[dim]) * (values.abs() + radius).cumsum(dim)


@rule("prod")
def _prod(x: Any, dim: int, keepdim: bool = False, **_: Any) -> Pair:  # noqa: FBT001, FBT002 - torch's order
    values, radius = parts(x)
    made, largest, magnitude = (v.prod(dim, keepdim) for v in (values, values.abs() + radius, values.abs()))
    return _sums(made, largest, magnitude, values.shape[dim])


@rule("cumprod")
def _cumprod(x: Any, dim: int, **_: Any) -> Pair:
    values, radius = parts(x)
    made, largest, magnitude = (v.cumprod(dim) for v in (values, values.abs() + radius, values.abs()))
    return _sums(made, largest, magnitude, values.shape[dim])


@rule("pow", "rpow")
def _pow(x: Any, exponent: Any) -> Pair:
    """A constant power. It grows fastest at the largest magnitude for powers of 1 or more, at the smallest below."""
    if isinstance(exponent, Tensor) or not isinstance(x, Bounded):
        raise NoAnalysisError("there is no analysis of a power of float32 numbers")
    values, radius = parts(x)
    size, made = values.abs(), values**exponent
    # where a power grows fastest depends on the exponent, so both ends of the interval are tried
    ends = [(end**exponent - size**exponent).abs() for end in (size + radius, (size - radius).clamp(min=0))]
    return made, torch.maximum(*ends) + lost(2 * TRANSCENDENTAL_ULPS + math.ceil(abs(exponent))) * ends_of(made, ends)


def ends_of(made: Tensor, ends: Sequence[Tensor]) -> Tensor:
    """Return the largest magnitude that an engine may have."""
    return made.abs() + torch.maximum(*ends)


def _monotone(name: str, function: Function, slack: float | Callable[[Tensor, Tensor], Tensor]) -> None:
    """Register a monotone function: its error is largest at an end of the operand's interval.

    *slack*: the library's own error, as a number relative to the result, or as a function of operand and result.
    """

    @rule(name)
    def compute(x: Any, *_: Any, **__: Any) -> Pair:
        values, radius = parts(x)
        made = function(values)
        ends = [(function(end) - made).abs() for end in (values + radius, values - radius)]
        # an interval that leaves the function's domain gives NaN, and so an infinite error
        apart = torch.where(radius == 0, 0.0, torch.maximum(*ends).nan_to_num(nan=math.inf))
        added = slack * (made.abs() + apart) if isinstance(slack, float) else slack(values, made)
        return made, apart + added


def _within(values: Tensor, made: Tensor) -> Tensor:
    """Return the error of a function whose library may subtract numbers of up to min(1, |operand|)."""
    return LIBRARY * torch.maximum(made.abs(), values.abs().clamp(max=1.0)) + SMALLEST


def _by_one(values: Tensor, made: Tensor) -> Tensor:  # noqa: ARG001 - as every slack
    """Return the error of a function whose library may subtract numbers of magnitude at most 1."""
    return LIBRARY * made.abs().clamp(min=1.0)


_monotone("exp", torch.exp, LIBRARY)
_monotone("expm1", torch.expm1, _by_one)
_monotone("log", torch.log, _by_one)
_monotone("log1p", torch.log1p, _within)
_monotone("nonnegative_sqrt", lambda x: x.clamp(min=0).sqrt(), lost(2))
_monotone("rsqrt", lambda x: x.clamp(min=0).rsqrt(), lost(4))
_monotone("sigmoid", torch.sigmoid, _by_one)
_monotone("tanh", torch.tanh, _by_one)
_monotone("erf", torch.erf, _within)
_monotone("floor", torch.floor, 0.0)
_monotone("ceil", torch.ceil, 0.0)
_monotone("round", torch.round, 0.0)
_monotone("sign", torch.sign, 0.0)


@rule("sqrt")
def _sqrt(x: Any) -> Pair:
    """The radius is infinite where a number may be negative by more than underflow adds: its root is NaN."""
    values, radius = parts(x)
    made, apart = RULES["nonnegative_sqrt"](x)
    return made, torch.where((values >= 0) & (values - radius < -UNDERFLOW), math.inf, apart)


@rule("logaddexp")
def _logaddexp(a: Any, b: Any) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    made = torch.logaddexp(x, y)
    return made, torch.maximum(r, s) + _by_one(x, made)


@rule("logsumexp")
def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Pair:  # noqa: FBT001, FBT002 - torch's order
    """No result changes by more than the operands; the largest is subtracted, exponentials are summed, it is added."""
    values, radius = parts(x)
    made = torch.logsumexp(values, dim, keepdim)
    if not values.numel():
        return made, torch.zeros_like(made)
    count = values.numel() // max(1, made.numel())
    spread = (values.amax(dim, keepdim=True) - values).nan_to_num(nan=0.0, posinf=0.0).amax(dim, keepdim)
    own = (2 * spread + 4 * TRANSCENDENTAL_ULPS + count) * UNIT + 2 * LIBRARY * made.abs()
    return made, radius.amax(dim, keepdim) + own


@rule("softmax")
def _softmax(x: Any, dim: int, **_: Any) -> Pair:
    """Errors of up to R in the operands change each share by a factor of at most exp(2 R)."""
    values, radius = parts(x)
    made = torch.softmax(values, dim)
    moved = torch.expm1(2 * radius.amax(dim, keepdim=True))
    return made, made * (moved + (1 + moved) * softmax_loss(values, dim)) + values.shape[dim] * SMALLEST


@rule("log_softmax")
def _log_softmax(x: Any, dim: int, **_: Any) -> Pair:
    """Errors of up to R in the operands change each logarithm by at most 2 R."""
    values, radius = parts(x)
    made = torch.log_softmax(values, dim)
    return made, 2 * radius.amax(dim, keepdim=True) + log_softmax_loss(values, dim, made)


def log_softmax_loss(x: Tensor, axis: int, made: Tensor) -> Tensor:
    """Return the error of a log softmax: from differences, the logarithm of the sum, and one subtraction."""
    distance = (x - x.amax(axis, keepdim=True)).abs()
    spread, largest = distance.amax(axis, keepdim=True), x.abs().amax(axis, keepdim=True)
    sums = (2 * distance + spread + 2 * largest + 4 * TRANSCENDENTAL_ULPS + x.shape[axis]) * UNIT
    return sums + 4 * TRANSCENDENTAL_ULPS * UNIT * made.abs()


def softmax_loss(x: Tensor, axis: int) -> Tensor:
    """Return the relative error of a softmax: from differences, exponentials, their sum and the quotient."""
    distance = (x - x.amax(axis, keepdim=True)).abs()
    seen = distance.masked_fill(distance.isinf(), 0.0)
    largest = x.abs().masked_fill(x.isinf(), 0.0).amax(axis, keepdim=True)
    spread = seen.amax(axis, keepdim=True)
    return (seen + spread + 4 * TRANSCENDENTAL_ULPS + x.shape[axis] + 2 + 2 * largest) * UNIT


@rule("clamp", "clip")
def _clamp(x: Any, *limits: Any, **named: Any) -> Pair:
    if any(isinstance(limit, Bounded) for limit in (*limits, *named.values())):
        raise NoAnalysisError("there is no analysis of limits of float32 numbers")
    values, radius = parts(x)
    made, *ends = (v.clamp(*limits, **named) for v in (values, values + radius, values - radius))
    return made, torch.maximum(*((end - made).abs() for end in ends)).nan_to_num(nan=0.0)


@rule("amin")
def _amin(x: Any, dim: Any = (), keepdim: bool = False) -> Pair:  # noqa: FBT001, FBT002 - torch's order
    values, radius = parts(x)
    return values.amin(dim, keepdim), radius.amax(dim, keepdim)


@rule("maximum")
def _maximum(a: Any, b: Any) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    return torch.maximum(x, y), torch.maximum(r, s)


@rule("minimum")
def _minimum(a: Any, b: Any) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    return torch.minimum(x, y), torch.maximum(r, s)


@rule("to", "double", "float", "type_as")
def _to(x: Any, *kind: Any, **named: Any) -> Pair:
    """A cast between float32 and float64 changes no number; a cast of truths to numbers keeps undecided ones."""
    values, radius = parts(x)
    asked = next((k for k in (*kind, *named.values()) if isinstance(k, torch.dtype)), torch.float64)
    if values.is_floating_point() and asked not in (torch.float32, torch.float64):
        raise NoAnalysisError(f"there is no analysis of a rounding to {asked}")
    return values if values.is_floating_point() or asked == torch.bool else values.to(asked), radius


@rule("masked_fill")
def _masked_fill(x: Any, mask: Tensor, value: Any) -> Pair:
    return _where(mask, value, x)


@rule("pad")
def _pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Pair:
    values, radius = parts(x)
    padded = torch.nn.functional.pad
    return padded(values, pad, mode, value), padded(radius, pad, mode, 0.0 if mode == "constant" else None)


@rule("where")
def _where(condition: Any, a: Any, b: Any) -> Pair:
    (chosen, unsure), (x, r), (y, s) = parts(condition), parts(a), parts(b)
    made = torch.where(chosen, x, y)
    either = torch.maximum(*((v.double() - made.double()).abs() + own for v, own in ((x, r), (y, s))))
    return made, torch.where(unsure > 0, either, torch.where(chosen, r, s))


def _comparison(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @rule(name)
    def compare(a: Any, b: Any) -> Pair:
        (x, r), (y, s) = parts(a), parts(b)
        return function(x, y), (((x - y).abs() <= r + s) & (r + s > 0)).double()


for _name in ("gt", "ge", "lt", "le", "eq", "ne"):
    _comparison(_name, getattr(torch, _name))


@rule("and", "logical_and")
def _both(a: Any, b: Any) -> Pair:
    (x, unsure), (y, other) = parts(a), parts(b)
    return x & y, torch.maximum(unsure, other)


@rule("all")
def _all(x: Any, *args: Any, **named: Any) -> Pair:
    values, unsure = parts(x)
    # `all` decides what else runs, so neither branch could be followed
    if bool((unsure > 0).any()):
        raise NoAnalysisError("there is no analysis of truths that the last bits turn")
    made = values.all(*args, **named)
    return made, torch.zeros(made.shape, dtype=torch.float64)


@rule("grid_sampler", "grid_sample")
def _grid_sample(x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Pair:  # noqa: FBT001
    """Between neighbours, a place that is off by e along an axis moves a result by the slope of the weights times e."""
    (values, radius), (at, off) = parts(x), parts(grid)
    made = torch.nn.functional.grid_sample(values, at, mode, padding_mode, align_corners)
    if mode == "nearest" or not values.numel() or not at.numel():
        raise NoAnalysisError("there is no analysis of places that are rounded")
    largest = float((values.abs() + radius).max())
    total, slope = (1.0, 2.0) if mode == "bilinear" else CUBIC
    axes = values.dim() - 2
    # places in pixels: a coordinate of -1..1 times half the size, with a few roundings of its own
    places = [4 * UNIT * size * (1 + float(at.abs().max())) + float(off.max()) * size / 2 for size in values.shape[2:]]
    weight = total**axes
    apart = weight * float(radius.max()) + sum(places) * slope * total ** (axes - 1) * largest
    return made, torch.full_like(made, apart + lost(32 * axes) * weight * largest)
