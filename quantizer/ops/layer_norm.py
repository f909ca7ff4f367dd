"""Layer normalisation: deviations from the mean over trailing axes, divided by the standard deviation, scaled, shifted."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.finish import finish
from quantizer.numerics.multipliers import compass, rescale
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters, QParams, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize import exact_sum
from quantizer.numerics.roots import QUOTIENT_BITS, inverse_root_table, quotient, square_root, table_inverse_root
from quantizer.numerics.rounding import divide, shift_right
from quantizer.numerics.rules import activation_params, effective_bits
from quantizer.ops import operator

FAMILY = "normalization"
ROOT_PLACES = 15
"""Binary places of Compass's inverse root."""
NORMAL_PLACES = 8
"""Binary places by which Compass's product of deviation and inverse root is shifted."""
SQUARES_ROOM = 6
"""Compass's spare bits for a sum of squares of 8 bits."""


@operator("layer_norm")
def reference(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, axis: int, epsilon: float
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) over the axes from *axis* on, times gamma, plus beta.

    The variance is that of the elements themselves (over N). In float32 operation by operation what Compass computes.
    """
    axes = _axes(x, axis)
    deviation = x - x.mean(dim=axes, keepdim=True)
    variance = (deviation**2).mean(dim=axes, keepdim=True)
    normal = deviation * (1.0 / torch.pow(variance + epsilon, 0.5))
    scaled = normal if gamma is None else gamma * normal
    return scaled if beta is None else scaled + beta


@operator("layer_norm")
def quantize(request: Request) -> Parameters:
    """Hand gamma as a weight and beta as a bias that is added to the product of gamma and the normalised value."""
    return _decided(request)[0]


@operator("layer_norm")
def quantized(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *,
    parameters: Parameters, axis: int, epsilon: float,
) -> Staged:  # fmt: skip
    """Add exactly (N*x - sum x, N*sum x**2 - (sum x)**2), take one root and one quotient, round half to even.

    Stages: root * 2**-exponent is sqrt(N**2 * (variance + epsilon)) in steps of x, 32 bits, floored; normalized is the
    quotient in units of 2**-30.
    """
    params, output, rounding = parameters.inputs["x"], parameters.outputs["y"], parameters.platform.rounding
    codes, axes = centred(x, params), _axes(x, axis)
    count = math.prod(x.shape[i] for i in axes)
    total = codes.sum(dim=axes, keepdim=True)
    spread = count * (codes * codes).sum(dim=axes, keepdim=True) - total * total
    offset = Fraction(epsilon) * count * count / Fraction(float(params.scale)) ** 2
    root, exponent = square_root(spread, offset)
    normalized = quotient(count * codes - total, root, exponent, rounding)
    unit = torch.tensor(2.0**-QUOTIENT_BITS, dtype=torch.float64)
    terms = [(normalized, unit) if gamma is None else _scaled(normalized, gamma, unit, parameters)]
    if beta is not None:
        terms.append((beta.expand(x.shape), parameters.constants["beta"].params.scale))
    result = torch.empty(x.shape, dtype=torch.int64)
    exact_sum(terms, float(output.scale), output.zero_point, result, output, rounding, 0)
    return Staged(result, {"root": root, "exponent": exponent, "normalized": normalized})


def _scaled(normalized: Tensor, gamma: Tensor, unit: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    params = parameters.constants["gamma"].params
    return normalized * centred(gamma, params), params.scale * unit


@operator("layer_norm", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand the table of inverse roots, shifts that keep their significance, and the multipliers of the last step.

    Normalised values take the codes of [-sqrt(N), sqrt(N)]. 8 bits: the variance is a sum of squares shifted so that its
    inverse root has 7 bits at least; 16 bits: a mean of squares, and a multiplier of steps / 127.
    Source: the Compass Optimizer, as recorded in cases/reference/compass/layernorm.
    """
    parameters, normal = _decided(request)
    bits, count = request.scheme.activation.bits, _count(request)
    if bits <= 8:
        room = math.ceil(math.log2(count)) - 1 - SQUARES_ROOM // 2
        room += room & 1
        numbers = {"variance_shift": room, "norm_multiplier": 1, "norm_shift": room >> 1}
    else:
        assert normal.steps is not None
        multiplier, shift = compass(normal.steps / 127, bits)
        numbers = {"variance_shift": 0, "norm_multiplier": int(multiplier), "norm_shift": int(shift)}
    factors = [normal, *(parameters.constants[name].params for name in ("gamma",) if name in parameters.constants)]
    output = parameters.outputs["y"]
    ratio = rescale(
        request.platform, FAMILY, [params.scale for params in factors], float(output.scale),
        bits, steps=[params.steps for params in factors if params.steps is not None], output_steps=output.steps,
    )  # fmt: skip
    return replace(parameters, rescale=ratio, numbers=numbers, tables={"inverse_root": inverse_root_table()})


@operator("layer_norm", platform="compass")
def quantized_compass(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *,
    parameters: Parameters, axis: int, epsilon: float,
) -> Staged:  # fmt: skip
    """Round the mean, floor the variance, look its inverse root up, round the normalised value, requantize; no epsilon.

    Stages: mean, variance, root (1 / sqrt(variance) in units of 2**-15), normalized; 16 bits: factor (root times the
    multiplier of the normalised codes) and deviation (half of it, floored, so that it has 16 bits) before the last.
    """
    numbers, rounding, axes = parameters.numbers, parameters.platform.rounding, _axes(x, axis)
    count = math.prod(x.shape[i] for i in axes)
    mean = divide(x.sum(dim=axes, keepdim=True), count, rounding)
    deviation = x - mean
    squares = (deviation * deviation).sum(dim=axes, keepdim=True)
    narrow = parameters.inputs["x"].dtype.bits <= 8
    variance = _variance(squares, count, numbers["variance_shift"] if narrow else None)
    exact_root = table_inverse_root(variance, parameters.tables["inverse_root"])
    root = shift_right(exact_root, 31 - ROOT_PLACES, "half_up")
    stages = {"mean": mean, "variance": variance, "root": root}
    shift = NORMAL_PLACES
    if narrow:
        factor, shift = root * numbers["norm_multiplier"], shift + numbers["norm_shift"]
    else:
        factor = shift_right(root * numbers["norm_multiplier"], numbers["norm_shift"], rounding).clamp(0, (1 << 16) - 1)
        deviation, shift = deviation >> 1, shift - 1
        stages |= {"factor": factor, "deviation": deviation}
    end = 1 << (parameters.outputs["y"].dtype.bits - 1)
    normalized = shift_right(deviation * factor, shift, rounding).clamp(-end, end - 1)
    acc = normalized if gamma is None else normalized * centred(gamma, parameters.constants["gamma"].params)
    if beta is not None:
        acc = acc + effective_bits(beta, parameters.platform.bias_effective_bits.get(FAMILY))
    return Staged(finish(acc, parameters, channel_axis=-1), {**stages, "normalized": normalized})


def _variance(squares: Tensor, count: int, shift: int | None) -> Tensor:
    """Return the mean of squares, floored, or their sum shifted right; 0 for a negative shift, as torch makes of it."""
    if shift is None:
        return squares // count
    return squares >> shift if shift >= 0 else torch.zeros_like(squares)


def _axes(x: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(range(axis % x.dim(), x.dim()))


def _count(request: Request) -> int:
    """Return N, the number of elements that are normalised together."""
    return math.prod(request.shapes["x"][int(request.attrs["axis"]) :])  # type: ignore[arg-type]


def _decided(request: Request) -> tuple[Parameters, QParams]:
    """Return what the spec decides, the bias under the normalised value's scale, and the parameters of that value."""
    parameters = default_parameters(request)
    reach = math.sqrt(_count(request))
    normal = activation_params(-reach, reach, request.scheme.activation, request.platform.parameters, signed=True)
    if "beta" not in request.constants:
        return parameters, normal
    factors = [normal, *(c.params for name, c in parameters.constants.items() if name == "gamma")]
    constants = {**parameters.constants, "beta": request.bias("beta", factors)}
    return replace(parameters, constants=constants), normal
