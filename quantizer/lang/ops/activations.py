"""Functions of one tensor. Codes are computed through their scales; `scale` and `zero_point` are [input, output]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.ops.elementwise import mul
from quantizer.lang.tensor import Tensor

GROUP = "activation"
Scales = Sequence[float] | None
Zeros = Sequence[int] | None


class Scaled(Protocol):
    """A function on floats, or on codes with the scales and zero points of input and output."""

    def __call__(
        self, input: Tensor, scale: Scales = None, zero_point: Zeros = None, out_name: str | None = None
    ) -> Tensor:
        """Add the operator and return its result."""
        ...


class Rounded(Protocol):
    """A function like `Scaled` that also names the rounding of its codes."""

    def __call__(
        self,
        input: Tensor,
        scale: Scales = None,
        zero_point: Zeros = None,
        out_name: str | None = None,
        round_mode: str = "half_away_from_zero",
    ) -> Tensor:
        """Add the operator and return its result."""
        ...


class Plain(Protocol):
    """A function of floats."""

    def __call__(self, input: Tensor, out_name: str | None = None) -> Tensor:
        """Add the operator and return its result."""
        ...


def _apply(
    top: str,
    x: Tensor,
    out_name: str | None,
    attrs: dict[str, AttrValue] | None = None,
    scale: Scales = None,
    zero_point: Zeros = None,
    dtypes: Sequence[str] = a.FLOATS_AND_CODES,
) -> Tensor:
    a.tensor("input", x, dtypes)
    scales, zeros = a.pairs(scale, zero_point, 2)
    graph, result = get_default_graph(), Result(x.dtype)
    if scales is not None and zeros is not None:
        graph.quantize(x, scales[0], zeros[0])
        result = Result(x.dtype, "", scales[1], zeros[1])
    return graph.add(top, [x], attrs or {}, result, out_name=out_name)[0]


def _scaled(name: str, top: str, says: str, **attrs: AttrValue) -> Scaled:
    def function(input: Tensor, scale: Scales = None, zero_point: Zeros = None, out_name: str | None = None) -> Tensor:
        return _apply(f"top.{top}", input, out_name, dict(attrs), scale, zero_point)

    function.__name__, function.__qualname__, function.__doc__ = name, name, says
    return operator(GROUP)(function)


def _rounded(name: str, top: str, says: str) -> Rounded:
    def function(
        input: Tensor,
        scale: Scales = None,
        zero_point: Zeros = None,
        out_name: str | None = None,
        round_mode: str = "half_away_from_zero",
    ) -> Tensor:
        attrs: dict[str, AttrValue] = {"round_mode": a.rounding("round_mode", round_mode)}
        return _apply(f"top.{top}", input, out_name, attrs, scale, zero_point)

    function.__name__, function.__qualname__, function.__doc__ = name, name, says
    return operator(GROUP)(function)


def _plain(name: str, top: str, says: str) -> Plain:
    def function(input: Tensor, out_name: str | None = None) -> Tensor:
        return _apply(f"top.{top}", input, out_name, dtypes=a.FLOATS)

    function.__name__, function.__qualname__, function.__doc__ = name, name, says
    return operator(GROUP)(function)


ceil = _scaled("ceil", "Ceil", "Return the least whole number that is not below x.")
floor = _scaled("floor", "Floor", "Return the greatest whole number that is not above x.")
sin = _scaled("sin", "Sin", "Return the sine of x in radians.")
cos = _scaled("cos", "Cos", "Return the cosine of x in radians.")
exp = _scaled("exp", "Exp", "Return e to the power x.")
ln = _scaled("ln", "Log", "Return the natural logarithm. For a negative real value, the result has code 0.")
elu = _scaled("elu", "Elu", "Return exp(x) - 1 below 0, x from there on.", alpha=1.0)
sqrt = _scaled("sqrt", "Sqrt", "Return the square root. For a negative real value, the result has code 0.")
rsqrt = _scaled("rsqrt", "Rsqrt", "Return 1 / sqrt(x). For a negative real value, the result has code 0.")
silu = _scaled("silu", "SiLU", "Return x * sigmoid(x).")
erf = _scaled("erf", "Erf", "Return the error function of x.")
log_sigmoid = _scaled("log_sigmoid", "Sigmoid", "Return log(sigmoid(x)).", log=True)
mish = _scaled("mish", "Mish", "Return x * tanh(log(1 + exp(x))).")
hswish = _scaled("hswish", "HardSwish", "Return x * max(0, min(1, x / 6 + 1 / 2)).")
sinh = _scaled("sinh", "Sinh", "Return the hyperbolic sine.")
cosh = _scaled("cosh", "Cosh", "Return the hyperbolic cosine.")
sign = _scaled("sign", "Sign", "Return -1, 0 or 1.")
hsigmoid = _scaled("hsigmoid", "HardSigmoid", "Return max(0, min(1, x / 6 + 1 / 2)).", alpha=1 / 6, beta=0.5)
tanh = _rounded("tanh", "Tanh", "Return the hyperbolic tangent.")
sigmoid = _rounded("sigmoid", "Sigmoid", "Return 1 / (1 + exp(-x)).")
gelu = _rounded("gelu", "GELU", "Return x times the normal distribution's integral, by erf.")
round = _plain("round", "Round", "Return the nearest whole number, halves away from zero.")
tan = _plain("tan", "Tan", "Return the tangent of x in radians.")
arccos = _plain("arccos", "Arccos", "Return the angle from 0 to pi whose cosine is x.")
arctanh = _plain("arctanh", "Arctanh", "Return the number whose hyperbolic tangent is x.")


@operator(GROUP)
def relu(input: Tensor, out_name: str | None = None) -> Tensor:
    """Return x, or 0 where it is negative; codes keep their grid."""
    return _apply("top.Relu", input, out_name)


@operator(GROUP)
def abs(input: Tensor, out_name: str | None = None) -> Tensor:
    """Return the magnitude; codes keep their grid."""
    return _apply("top.Abs", input, out_name)


@operator(GROUP)
def leaky_relu(
    input: Tensor, negative_slope: float = 0.01, out_name: str | None = None, round_mode: str = "half_away_from_zero"
) -> Tensor:
    """Return x, times negative_slope where it is negative; codes keep their grid."""
    slope = a.number("negative_slope", negative_slope)
    attrs: dict[str, AttrValue] = {"alpha": slope, "round_mode": a.rounding("round_mode", round_mode)}
    return _apply("top.LeakyRelu", input, out_name, attrs)


@operator(GROUP)
def prelu(input: Tensor, slope: Tensor, out_name: str | None = None) -> Tensor:
    """Return x, times a slope where it is negative; slope is a coefficient that broadcasts to x."""
    a.tensor("input", input, a.FLOATS)
    a.coefficient("slope", slope, (input.dtype,))
    own = (1,) * (len(input.shape) - len(slope.shape)) + slope.shape
    if len(own) != len(input.shape) or any(n not in (1, m) for n, m in zip(own, input.shape, strict=True)):
        raise LangError(f"slope has shape {list(slope.shape)}: must broadcast to {list(input.shape)}.")
    return get_default_graph().add("top.PRelu", [input, slope], {}, Result(input.dtype), out_name=out_name)[0]


@operator(GROUP)
def square(input: Tensor, scale: Scales = None, zero_point: Zeros = None, out_name: str | None = None) -> Tensor:
    """Return x * x, as `mul` computes it."""
    a.tensor("input", input, a.FLOATS_AND_CODES)
    scales, zeros = a.pairs(scale, zero_point, 2)
    # mul takes the scales of both operands, which are one tensor here
    three = None if scales is None else [scales[0], *scales]
    return mul(input, input, three, None if zeros is None else [zeros[0], *zeros], input.dtype, out_name)


@operator(GROUP)
def swish(
    input: Tensor,
    beta: float,
    scale: Scales = None,
    zero_point: Zeros = None,
    round_mode: str = "half_away_from_zero",
    out_name: str | None = None,
) -> Tensor:
    """Return x * sigmoid(beta * x)."""
    attrs: dict[str, AttrValue] = {"beta": a.number("beta", beta), "round_mode": a.rounding("round_mode", round_mode)}
    return _apply("top.Swish", input, out_name, attrs, scale, zero_point)


@operator(GROUP)
def softmax(input: Tensor, axis: int, out_name: str | None = None) -> Tensor:
    """Return the softmax of floats along one axis."""
    a.tensor("input", input, a.FLOATS)
    return _apply("top.Softmax", input, out_name, {"axis": a.axis("axis", axis, len(input.shape))})


@operator(GROUP)
def softmax_int(
    input: Tensor,
    axis: int,
    scale: Scales,
    zero_point: Zeros = None,
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return the softmax of codes along one axis as codes; scale is [input, output]."""
    a.tensor("input", input, a.CODES)
    if scale is None:
        raise LangError("scale is None: must be [input, output].")
    attrs: dict[str, AttrValue] = {
        "axis": a.axis("axis", axis, len(input.shape)),
        "round_mode": a.rounding("round_mode", round_mode),
    }
    return _apply("top.Softmax", input, out_name, attrs, scale, zero_point)
