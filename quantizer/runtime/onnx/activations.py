"""Activations: functions of one operand with constants, and functions along an axis."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Node
from quantizer.runtime.onnx.elementwise import UNSIGNED, by_numpy
from quantizer.runtime.onnx.kernels import HALVES, NoFunctionError, Ours, axis_of, kernel, mapped, one_of, scalar

COERCED_UNTIL = 13
"""The first version of Softmax and LogSoftmax that works along one axis. Earlier ones flatten from the axis on."""


PLAIN = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "HardSwish": "hard_swish",
    "Softsign": "softsign",
    "Mish": "mish",
}
"""ONNX's name -> the registry's name, for functions of one operand without attributes."""


def _plain(x: Tensor) -> bool:
    return x.is_floating_point() and x.dim() > 0 and x.numel() > 0


@mapped(*PLAIN)
def plain(x: Tensor, *, op: Node) -> Ours | None:
    """Map to the registry's operator of that name."""
    return Ours(PLAIN[op.op], {"x": x}, {}) if _plain(x) else None


@kernel("Relu")
def relu(x: Tensor) -> Tensor:
    """Return x with 0 in place of values below 0; x may also hold integers or be a scalar."""
    return x.clamp(min=0)


@kernel("Sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    """Return the logistic function of x."""
    return torch.sigmoid(x)


@kernel("Tanh")
def tanh(x: Tensor) -> Tensor:
    """Return the hyperbolic tangent of x."""
    return torch.tanh(x)


@mapped("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float) -> Ours | None:
    """Map to the registry's leaky_relu, whose slope is any number."""
    return Ours("leaky_relu", {"x": x}, {"slope": alpha}) if alpha >= 0 and _plain(x) else None


@kernel("LeakyRelu")
def leaky_relu_of_any_slope(x: Tensor, *, alpha: float) -> Tensor:
    """Multiply numbers below zero by alpha."""
    return torch.where(x < 0, x * alpha, x)


def sliced_axis(x: Tensor, slope: Tensor) -> int | None:
    """Return the only axis along which a broadcast slope varies; None if there is no such single axis."""
    axes = [axis for axis in range(-slope.dim(), 0) if slope.shape[axis] > 1]
    fits = len(axes) == 1 and slope.dim() <= x.dim() and slope.shape[axes[0]] == x.shape[axes[0]]
    return axes[0] % x.dim() if fits else None


@mapped("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Ours | None:
    """Map to the registry's leaky_relu if the slope is one number, its prelu if there is one slope for each slice."""
    if not _plain(x):
        return None
    if slope.numel() == 1 and slope.dim() <= x.dim() and float(slope) >= 0:
        return Ours("leaky_relu", {"x": x}, {"slope": float(slope)})
    axis = sliced_axis(x, slope)
    return None if axis is None else Ours("prelu", {"x": x, "weight": slope.reshape(-1)}, {"axis": axis})


@kernel("PRelu")
def prelu_of_any_slopes(x: Tensor, slope: Tensor) -> Tensor:
    """Multiply numbers below zero by a slope that broadcasts to the shape of x."""
    if torch.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise UnsupportedError(f"PRelu: slope of shape {list(slope.shape)}: must broadcast to {list(x.shape)}.")
    return torch.where(x < 0, x * slope, x)


@mapped("Elu")
def elu(x: Tensor, *, alpha: float) -> Ours | None:
    """Map to the registry's elu."""
    return Ours("elu", {"x": x}, {"alpha": alpha}) if _plain(x) and alpha >= 0 else None


@kernel("Elu")
def elu_of_any_alpha(x: Tensor, *, alpha: float) -> Tensor:
    """Return alpha * (exp(x) - 1) where x is below 0, else x."""
    return torch.where(x < 0, alpha * torch.expm1(x), x)


@mapped("Celu")
def celu(x: Tensor, *, alpha: float) -> Ours | None:
    """Map to the registry's celu."""
    return Ours("celu", {"x": x}, {"alpha": alpha}) if _plain(x) and alpha > 0 else None


@kernel("Celu")
def celu_of_any_alpha(x: Tensor, *, alpha: float) -> Tensor:
    """Return max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return x.clamp(min=0) + (alpha * torch.expm1(x / alpha)).clamp(max=0)


@mapped("Selu")
def selu(x: Tensor, *, alpha: float, gamma: float) -> Ours | None:
    """Map to the registry's selu."""
    fits = _plain(x) and alpha >= 0 and gamma > 0
    return Ours("selu", {"x": x}, {"alpha": alpha, "gamma": gamma}) if fits else None


@kernel("Selu")
def selu_of_any_slope(x: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return gamma * elu(x)."""
    return gamma * torch.where(x <= 0, alpha * torch.expm1(x), x)


@mapped("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float, beta: float) -> Ours | None:
    """Map to the registry's hard_sigmoid between 0 and 1."""
    attrs = {"alpha": alpha, "beta": beta, "low": 0.0, "high": 1.0}
    return Ours("hard_sigmoid", {"x": x}, attrs) if _plain(x) and alpha >= 0 else None


@kernel("HardSigmoid")
def hard_sigmoid_of_any_slope(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return alpha * x + beta, clamped to [0, 1]."""
    return (alpha * x + beta).clamp(0, 1)


@kernel("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    """Return x times the hard sigmoid of slope 1/6."""
    return x * (x / 6 + 0.5).clamp(0, 1)


@kernel("Softplus")
def softplus(x: Tensor) -> Tensor:
    """Return log(exp(x) + 1), without overflow."""
    # the logarithm of exp(x) + exp(0)
    return torch.logaddexp(x, torch.zeros_like(x))


@kernel("Softsign")
def softsign(x: Tensor) -> Tensor:
    """Return x / (1 + |x|)."""
    return x / (1 + x.abs())


@kernel("Mish")
def mish(x: Tensor) -> Tensor:
    """Return x * tanh(softplus(x))."""
    return x * torch.tanh(softplus(x))


@mapped("Swish")
def silu(x: Tensor, *, alpha: float) -> Ours | None:
    """Map to the registry's silu."""
    return Ours("silu", {"x": x}, {}) if _plain(x) and alpha == 1 else None


@kernel("Swish")
def swish(x: Tensor, *, alpha: float) -> Tensor:
    """Return x * sigmoid(alpha * x)."""
    return x * torch.sigmoid(alpha * x)


@mapped("Gelu")
def gelu(x: Tensor, *, approximate: str) -> Ours | None:
    """Map to the registry's gelu."""
    return (
        Ours("gelu", {"x": x}, {"approximate": approximate}) if _plain(x) and approximate in ("none", "tanh") else None
    )


@kernel("Gelu")
def gelu_any(x: Tensor, *, approximate: str) -> Tensor:
    """Return x times the normal distribution function, by erf or by an approximation with tanh."""
    one_of("Gelu", "approximate", approximate, ("none", "tanh"))
    # torch's function multiplies x by 2 before it halves the product; so far out gelu(x) is x
    return torch.where(x > torch.finfo(x.dtype).max / 4, x, F.gelu(x, approximate=approximate))


@mapped("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float) -> Ours | None:
    """Map to the registry's thresholded_relu."""
    return Ours("thresholded_relu", {"x": x}, {"alpha": alpha}) if _plain(x) and alpha >= 0 else None


@kernel("ThresholdedRelu")
def thresholded_relu_of_any_alpha(x: Tensor, *, alpha: float) -> Tensor:
    """Return x where it is above alpha, 0 elsewhere."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


@kernel("Shrink")
def shrink(x: Tensor, *, lambd: float, bias: float) -> Tensor:
    """Return x + bias below -lambd, x - bias above lambd, and 0 between them."""
    if x.dtype in UNSIGNED:
        raise NoFunctionError(f"Shrink of {x.dtype}: no kernel takes this format.")
    wide = x if x.is_floating_point() else x.double()
    found = torch.where(wide < -lambd, wide + bias, torch.where(wide > lambd, wide - bias, torch.zeros_like(wide)))
    return found.to(x.dtype)


def around_zero(low: float, high: float) -> bool:
    """Return whether the registry's clip has these bounds."""
    return -math.inf < low <= 0 <= high < math.inf


def _beyond(x: Tensor, bound: float) -> bool:
    """Return whether a finite bound lies outside x's type: an attribute is float32, and such a bound has no effect."""
    return x.is_floating_point() and torch.finfo(x.dtype).max < abs(bound) < math.inf


@mapped("Clip")
def clip_between(x: Tensor, low: Tensor | None = None, high: Tensor | None = None, **attrs: float) -> Ours | None:
    """Map to the registry's clip, between two finite numbers around 0."""
    first, last = scalar(low, attrs.get("min", -math.inf)), scalar(high, attrs.get("max", math.inf))
    within = not any(_beyond(x, bound) for bound in (first, last))
    fits = x.is_floating_point() and x.dim() and x.numel() and around_zero(first, last) and within
    return Ours("clip", {"x": x}, {"low": float(first), "high": float(last)}) if fits else None


@kernel("Clip")
def clip(
    x: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Tensor:
    """Clamp to the low bound, then to the high bound."""
    first, last = scalar(low, min), scalar(high, max)
    # a bound beyond the type would become infinite in it
    first, last = (None if bound is not None and _beyond(x, bound) else bound for bound in (first, last))
    if x.dtype in UNSIGNED:
        return by_numpy(lambda v: v.clip(first, last), x)
    x = x if first is None else x.clamp(min=first)
    return x if last is None else x.clamp(max=last)


def softmax_along(x: Tensor, dim: int) -> Tensor:
    """Return the softmax along one axis. Formats of 16 bits round at every step, as in ONNX's expansion of it."""
    if x.dtype not in HALVES or not x.numel():
        return torch.softmax(x, dim=dim)
    # less the maximum, so that no exponential overflows
    powers = (x - x.amax(dim=dim, keepdim=True)).exp()
    return powers / powers.float().sum(dim=dim, keepdim=True).to(x.dtype)


@mapped("Softmax")
def softmax(x: Tensor, *, axis: int, since: int) -> Ours | None:
    """Map to the registry's softmax along one axis."""
    plain = since >= COERCED_UNTIL and x.dim() and x.numel() and x.dtype not in HALVES
    return Ours("softmax", {"x": x}, {"axis": axis}) if plain else None


@kernel("Softmax")
def softmax_of_rows(x: Tensor, *, axis: int, since: int) -> Tensor:
    """Return the softmax along *axis*, or before version 13 over all axes from *axis* on; x may be a scalar."""
    return _by_rows(softmax_along, x, axis, since)


@kernel("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int, since: int) -> Tensor:
    """Return the logarithm of the softmax."""
    return _by_rows(torch.log_softmax, x, axis, since)


def _by_rows(function: object, x: Tensor, axis: int, since: int) -> Tensor:
    assert callable(function)
    axis = axis_of("Softmax", axis, x.dim())
    if since >= COERCED_UNTIL or not x.numel():
        found = function(x, dim=axis)
    else:
        # before version 13 all axes from *axis* on are one
        found = function(x.reshape(math.prod(x.shape[:axis]), -1), dim=1).reshape(x.shape)
    assert isinstance(found, Tensor)
    return found


@kernel("Hardmax")
def hardmax(x: Tensor, *, axis: int, since: int) -> Tensor:
    """Return 1 at the first maximum, 0 elsewhere."""

    def one_hot(v: Tensor, dim: int) -> Tensor:
        return torch.zeros_like(v).scatter_(dim, v.argmax(dim=dim, keepdim=True), 1)

    return _by_rows(one_hot, x, axis, since) if x.numel() else x
