"""Running error analysis (Wilkinson): an operator's definition, with a bound of float32's error beside every number.

The definition runs on `Bounded` tensors. Every function of torch that it calls has a rule: what the errors of its
operands become, and what its own float32 rounding adds, for sums in any order. A function without a rule has no
analysis, and its name is said. A comparison that the errors can turn is a bool of radius 1; a choice by it may be
either branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.float_forward import TRANSCENDENTAL_ULPS
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.onnx.kernels import KERNELS, Context, special

SMALLEST = float(torch.finfo(torch.float32).smallest_normal)
LIBRARY = lost(2 * TRANSCENDENTAL_ULPS)
"""Relative error of a library's function."""
MADE = lost(4)
"""Relative error of numbers that a definition computes from integers and attributes, such as positions on a grid."""
UNDERFLOW = 2.0**-100
CUBIC = (1.375, 4.2)
"""The largest sum of magnitudes of cubic weights (a = -0.75), and that of their slopes."""
Pair: TypeAlias = "tuple[Tensor, Tensor]"
Rule: TypeAlias = "Callable[..., Pair]"
Function: TypeAlias = "Callable[[Tensor], Tensor]"
RULES: dict[str, Rule] = {}


OF_INTEGERS = frozenset(["CastLike", "EyeLike"])
"""Operators that compute real numbers from integers with at most one rounding."""
LARGEST = float(torch.finfo(torch.float32).max)


class NoAnalysisError(UnsupportedError):
    """A function without a rule, or an error that a rule cannot bound."""


class Bounded(Tensor):
    """Numbers in float64, or booleans, with the possible float32 error of each."""

    radius: Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute *func* on the numbers, and the radius by its rule; NoAnalysisError if it has none."""
        with torch._C.DisableTorchFunctionSubclass():
            return _called(func, args, dict(kwargs or {}))


def run_bounded(node: Node, operands: Sequence[Tensor | None], graph: Graph, *, dequantized: bool) -> list[Bounded]:
    """Return the results of a node's own definition; NoAnalysisError names what has no rule.

    *dequantized*: the operands are products of codes and scales, which an engine may round once each.
    """
    kernel = KERNELS.get(node.op)
    if kernel is None or kernel.own is None:
        raise NoAnalysisError("there is no analysis of its float32 error")
    given = [
        bounded(v, 2 * UNIT * v.abs() * dequantized) if v is not None and v.is_floating_point() else v for v in operands
    ]
    made = kernel.own(*given, **node.attrs, **special(kernel.own, node, Context(graph, torch.device("cpu"))))
    return [_result(value, node.op) for value in (made if isinstance(made, list | tuple) else [made])]


def _result(found: Tensor, op: str) -> Bounded:
    """Return one result of a definition. NoAnalysisError if a function without a rule computed it from integers."""
    if isinstance(found, Bounded):
        return found
    if found.is_floating_point() and op not in OF_INTEGERS:
        raise NoAnalysisError("there is no analysis of numbers that it makes of integers")
    return exact(found)


def bounded(values: Tensor, radius: Tensor) -> Bounded:
    """Return *values* with their radius.

    A number that overflows in float32 becomes infinite; one that may overflow gets an infinite radius.
    """
    if values.is_floating_point():
        size = values.abs()
        values = torch.where(size - radius > LARGEST, values.sign() * math.inf, values)
        radius = torch.where(size + radius >= LARGEST, math.inf, radius).masked_fill(values.isinf(), 0.0)
    made = values.detach().as_subclass(Bounded)
    made.radius = radius
    return made


def exact(values: Tensor) -> Bounded:
    """Return *values* without error."""
    return bounded(values, torch.zeros(values.shape, dtype=torch.float64))


def parts(found: object) -> Pair:
    """Return the numbers of an operand and their radius: a few roundings if the definition computed them."""
    if isinstance(found, Bounded):
        return found.as_subclass(Tensor), found.radius
    values = found if isinstance(found, Tensor) else torch.tensor(found, dtype=torch.float64)
    radius = torch.zeros(values.shape, dtype=torch.float64)
    if values.is_floating_point() and values.numel() and not torch.equal(values, values.float().to(values.dtype)):
        radius += MADE * float(values.abs().max())
    return values, radius


def _called(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = str(func.__name__).strip("_")
    if name == "get":  # it reads an attribute of the tensor: shape, type, or a transposition
        found = func(*_mapped(args, _numbers))
        return bounded(found, func(*_mapped(args, _radii))) if isinstance(found, Tensor) else found
    if name in SEEN:
        return func(*_mapped(args, _numbers), **_mapped(kwargs, _numbers))
    rule = RULES.get(name)
    if rule is not None:
        return bounded(*rule(*args, **kwargs))
    if name in MOVEMENTS:
        made, radii = (func(*_mapped(args, of), **_mapped(kwargs, of)) for of in (_numbers, _radii))
        if isinstance(made, Tensor):
            return bounded(made, radii)
        return [bounded(*pair) for pair in zip(made, radii, strict=True)]
    raise NoAnalysisError(f"there is no analysis of the float32 error of {name}")


def _mapped(found: Any, of: Callable[[Any], Any]) -> Any:
    if isinstance(found, list | tuple):
        return type(found)(_mapped(item, of) for item in found)
    if isinstance(found, dict):
        return {key: _mapped(item, of) for key, item in found.items()}
    return of(found)


def _numbers(found: Any) -> Any:
    return found.as_subclass(Tensor) if isinstance(found, Bounded) else found


def _radii(found: Any) -> Any:
    if isinstance(found, Bounded):
        return found.radius
    if isinstance(found, Tensor) and found.is_floating_point():
        return torch.zeros(found.shape, dtype=torch.float64)
    return found


SEEN = frozenset(
    "dim size numel is_floating_point stride isnan isinf isfinite new_zeros new_ones new_full zeros_like ones_like "
    "full_like len".split()
)
"""Functions whose results do not depend on the last bits of numbers."""
MOVEMENTS = frozenset(
    "transpose reshape permute getitem chunk split narrow flatten squeeze unsqueeze stack cat index_select gather flip "
    "repeat_interleave expand expand_as broadcast_to contiguous clone movedim select unfold unbind swapaxes tril triu "
    "diagonal tile repeat roll view amax relu abs concat detach take_along_dim".split()
)
"""Functions that move numbers, or whose results differ by no more than their operands.

The same function maps the radii.
"""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of torch's functions of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def rounded(values: Tensor, radius: Tensor) -> Pair:
    """Add one float32 rounding of the number that an engine may have."""
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
    """Return the error of sums of products: that of the operands, and gamma_n of an engine's magnitudes."""
    return values, largest - magnitude + lost(terms + 1) * largest + 2.0**-50 * magnitude + terms * SMALLEST


@rule("sum")
def _sum(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Pair:  # noqa: FBT001, FBT002 - as in torch
    values, radius = parts(x)
    dim = tuple(range(values.dim())) if dim is None else dim
    made, apart, largest = (v.sum(dim, keepdim) for v in (values, radius, values.abs() + radius))
    return made, apart + lost(max(1, values.numel() // max(1, made.numel()))) * largest


@rule("mean")
def _mean(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Pair:  # noqa: FBT001, FBT002 - as in torch
    values, _radius = parts(x)
    made = values.mean() if dim is None else values.mean(dim, keepdim)
    count = values.numel() / max(1, made.numel())
    return rounded(made, _sum(x, dim, keepdim)[1] / count)


@rule("cumsum")
def _cumsum(x: Any, dim: int, **_: Any) -> Pair:
    values, radius = parts(x)
    return values.cumsum(dim), radius.cumsum(dim) + lost(values.shape[dim]) * (values.abs() + radius).cumsum(dim)


@rule("prod")
def _prod(x: Any, dim: int, keepdim: bool = False, **_: Any) -> Pair:  # noqa: FBT001, FBT002 - as in torch
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
    """A constant power. For exponents of 1 or more it grows fastest at the largest magnitude, else at the smallest."""
    if isinstance(exponent, Tensor) or not isinstance(x, Bounded):
        raise NoAnalysisError("there is no analysis of a power of float32 numbers")
    values, radius = parts(x)
    size, made = values.abs(), values**exponent
    ends = [(end**exponent - size**exponent).abs() for end in (size + radius, (size - radius).clamp(min=0))]
    return made, torch.maximum(*ends) + lost(2 * TRANSCENDENTAL_ULPS + math.ceil(abs(exponent))) * ends_of(made, ends)


def ends_of(made: Tensor, ends: Sequence[Tensor]) -> Tensor:
    """Return the largest magnitude that an engine's result may have."""
    return made.abs() + torch.maximum(*ends)


def _monotone(name: str, function: Function, slack: float | Callable[[Tensor, Tensor], Tensor]) -> None:
    """Register a rising or falling function: the ends of the operand's interval, and the library's own error.

    *slack*: what it may lose, from the operand and the result: a number relative to the result, or a function.
    """

    @rule(name)
    def compute(x: Any, *_: Any, **__: Any) -> Pair:
        values, radius = parts(x)
        made = function(values)
        ends = [(function(end) - made).abs() for end in (values + radius, values - radius)]
        apart = torch.where(radius == 0, 0.0, torch.maximum(*ends).nan_to_num(nan=math.inf))
        added = slack * (made.abs() + apart) if isinstance(slack, float) else slack(values, made)
        return made, apart + added


def _within(values: Tensor, made: Tensor) -> Tensor:
    """Register a function in which a library may cancel numbers that are at most 1 and at most the operand."""
    return LIBRARY * torch.maximum(made.abs(), values.abs().clamp(max=1.0)) + SMALLEST


def _by_one(values: Tensor, made: Tensor) -> Tensor:  # noqa: ARG001 - required by the common signature
    """A function whose library may subtract numbers of up to 1."""
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
    """A number that may be negative, by more than what underflow adds, has no limit: its root is NaN."""
    values, radius = parts(x)
    made, apart = RULES["nonnegative_sqrt"](x)
    return made, torch.where((values >= 0) & (values - radius < -UNDERFLOW), math.inf, apart)


@rule("logaddexp")
def _logaddexp(a: Any, b: Any) -> Pair:
    (x, r), (y, s) = parts(a), parts(b)
    made = torch.logaddexp(x, y)
    return made, torch.maximum(r, s) + _by_one(x, made)


@rule("logsumexp")
def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Pair:  # noqa: FBT001, FBT002 - as in torch
    """No result moves by more than the operands do; the largest is subtracted and added again, a sum is in between."""
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
    """Return the error of a log-softmax: that of differences, of the logarithm of the sum, and of one subtraction."""
    distance = (x - x.amax(axis, keepdim=True)).abs()
    spread, largest = distance.amax(axis, keepdim=True), x.abs().amax(axis, keepdim=True)
    sums = (2 * distance + spread + 2 * largest + 4 * TRANSCENDENTAL_ULPS + x.shape[axis]) * UNIT
    return sums + 4 * TRANSCENDENTAL_ULPS * UNIT * made.abs()


def softmax_loss(x: Tensor, axis: int) -> Tensor:
    """Return the relative error of a softmax from differences, exponentials, their sum and the quotient."""
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
def _amin(x: Any, dim: Any = (), keepdim: bool = False) -> Pair:  # noqa: FBT001, FBT002 - as in torch
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
    """Casts between float32 and float64 change no number.

    A cast of booleans to numbers keeps the error of undecided ones.
    """
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
    places = [4 * UNIT * size * (1 + float(at.abs().max())) + float(off.max()) * size / 2 for size in values.shape[2:]]
    weight = total**axes
    apart = weight * float(radius.max()) + sum(places) * slope * total ** (axes - 1) * largest
    return made, torch.full_like(made, apart + lost(32 * axes) * weight * largest)
