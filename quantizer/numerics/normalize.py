"""Integer normalisation of rows of codes: parameters, exact arithmetic, and arithmetic by a table of inverse roots."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.exact_sum import exact_sum
from quantizer.numerics.parameters import default_parameters, group_sizes
from quantizer.numerics.qparams import Parameters, QParams, Rescale, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.ratio_to_multiplier import float32_multiplier, rescale
from quantizer.numerics.requantize_accumulator import requantize_accumulator
from quantizer.numerics.request import Request
from quantizer.numerics.roots import QUOTIENT_BITS, inverse_root_table, quotient, square_root, table_inverse_root
from quantizer.numerics.rounding import divide, shift_right
from quantizer.numerics.rules import activation_params, effective_bits

ROOT_PLACES = 15
"""Binary places of the inverse root."""
NORMAL_PLACES = 8
"""The product of deviation and inverse root is shifted right by this many bits."""
SQUARES_ROOM = 6
"""Bits that a sum of 8-bit squares leaves unused."""
FACTOR_MOST = (1 << 16) - 1
"""The largest product of an inverse root and the multiplier of normalised codes."""


def decided(request: Request, count: int, group: int | None = None) -> tuple[Parameters, QParams]:
    """Return the parameters of the spec, a bias with the scale of the normalized value, and the format of that value.

    No value that is normalised over *count* elements leaves +-sqrt(count). *group*: channels that share a scale of
    gamma.
    """
    parameters = default_parameters(request)
    if group is not None:
        parameters = replace(parameters, constants={**parameters.constants, "gamma": request.weight("gamma", group)})
    reach = math.sqrt(count)
    normal = activation_params(-reach, reach, request.scheme.activation, request.platform.parameters, signed=True)
    if "beta" not in request.constants:
        return parameters, normal
    factors = [normal, *(c.params for name, c in parameters.constants.items() if name == "gamma")]
    constants = {**parameters.constants, "beta": request.bias("beta", factors)}
    return replace(parameters, constants=constants), normal


def decided_by_table(request: Request, count: int, *, mean: bool = True) -> Parameters:
    """Return parameters with a table of inverse roots, shifts that keep significant bits, and the last multipliers.

    8 bits: the variance is a sum of squares, shifted so that its inverse root has at least 7 bits. 16 bits, or if no
    *mean* is subtracted: it is a mean of squares, and the multiplier is steps / 127. Where channels have one shift,
    neighbours share a scale of gamma until no multiplier is 0.
    """
    own = request.spec.quantization.family in request.platform.multiplier.own_shifts
    groups: list[int | None] = [None] if own or "gamma" not in request.constants else group_sizes(request, "gamma")
    parameters, normal, ratio = _first_without_zero(request, count, groups)
    bits = request.scheme.activation.bits
    if bits <= 8 and mean:
        room = math.ceil(math.log2(count)) - 1 - SQUARES_ROOM // 2
        # even, so that the root of 2**room is a whole shift, too
        room += room & 1
        numbers = {"variance_shift": room, "norm_multiplier": 1, "norm_shift": room >> 1}
    else:
        assert normal.steps is not None
        multiplier, shift = float32_multiplier(normal.steps / 127, bits)
        numbers = {"norm_multiplier": int(multiplier), "norm_shift": int(shift)}
        numbers = {"variance_shift": 0, **numbers} if mean else numbers
    return replace(parameters, rescale=ratio, numbers=numbers, tables={"inverse_root": inverse_root_table()})


def _first_without_zero(request: Request, count: int, groups: list[int | None]) -> tuple[Parameters, QParams, Rescale]:
    """Return the parameters for the first entry of *groups* that gives no multiplier of 0, else for the last entry."""
    parameters, normal = decided(request, count, groups[0])
    ratio = _ratio(request, parameters, normal)
    if len(groups) == 1 or bool((ratio.mantissa > 0).all()):
        return parameters, normal, ratio
    return _first_without_zero(request, count, groups[1:])


def _ratio(request: Request, parameters: Parameters, normal: QParams) -> Rescale:
    """Return the multipliers that scale the normalised value times gamma to the output."""
    factors = [normal, *(parameters.constants[name].params for name in ("gamma",) if name in parameters.constants)]
    output = parameters.outputs["y"]
    return rescale(
        request.platform,
        request.spec.quantization.family,
        [params.scale for params in factors],
        float(output.scale),
        request.scheme.activation.bits,
        steps=[params.steps for params in factors if params.steps is not None],
        output_steps=output.steps,
    )


def normalize_exactly(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    parameters: Parameters,
    count: int,
    epsilon: float,
    *,
    mean: bool = True,
) -> Staged:
    """Normalise rows of *count* elements exactly: an integer square root, floored, and a quotient rounded half to even.

    gamma and beta broadcast against x. *mean*: N*x - sum x over N*sum x**2 - (sum x)**2; without it N*x over N*sum
    x**2. Stages, in rows of N: root * 2**-exponent is sqrt(N**2 * (variance + epsilon)) in steps of x, 32 bits,
    floored; normalized is the quotient in units of 2**-30.
    """
    params, output, rounding = parameters.inputs["x"], parameters.outputs["y"], parameters.platform.rounding
    rows = centred(x, params).reshape(-1, count)
    total = rows.sum(dim=1, keepdim=True) if mean else torch.zeros(len(rows), 1, dtype=torch.int64)
    # the spread is N**2 * variance in steps of x, so epsilon is brought to the same units
    offset = Fraction(epsilon) * count * count / Fraction(float(params.scale)) ** 2
    root, exponent = square_root(_spread(rows, total), offset)
    # (N * x - sum x) / sqrt(N**2 * variance): N cancels
    normalized = quotient(count * rows - total, root, exponent, rounding)
    unit = torch.tensor(2.0**-QUOTIENT_BITS, dtype=torch.float64)
    shaped = normalized.reshape(x.shape)
    terms = [(shaped, unit) if gamma is None else _scaled(shaped, gamma, unit, parameters)]
    if beta is not None:
        params = parameters.constants["beta"].params
        terms.append((beta.expand(x.shape), params.along(params.scale, beta.dim())))
    result = torch.empty(x.shape, dtype=torch.int64)
    exact_sum(terms, float(output.scale), output.zero_point, result, output, rounding, 0)
    return Staged(result, {"root": root, "exponent": exponent, "normalized": normalized})


def along_channels(values: Tensor | None) -> Tensor | None:
    """Return one value a channel shaped to broadcast against [n, c, h, w]."""
    return None if values is None else values[:, None, None]


def _spread(rows: Tensor, total: Tensor) -> Tensor:
    """Return N*sum x**2 - (sum x)**2 of each row."""
    return rows.shape[1] * (rows * rows).sum(dim=1, keepdim=True) - total * total


def _scaled(normalized: Tensor, gamma: Tensor, unit: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    params = parameters.constants["gamma"].params
    return normalized * centred(gamma, params), params.along(params.scale, gamma.dim()) * unit


def normalize_by_table(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    parameters: Parameters,
    count: int,
    family: str,
    *,
    channel_axis: int = -1,
) -> Staged:
    """Normalise by a table: round mean, floor variance, look up its inverse root, round, requantize; no epsilon.

    gamma and beta broadcast against x [..., *channel_axis*, ...]. Stages, in rows of N: mean, variance, root
    (1 / sqrt(variance) in units of 2**-15), normalized. With 16 bits, two stages come before the last: factor (root
    times the multiplier of the normalised codes), and deviation (halved and floored, so that it has 16 bits).
    """
    numbers, rounding = parameters.numbers, parameters.platform.rounding
    rows = x.reshape(-1, count)
    # of the raw codes, because the zero point cancels in the deviation
    mean = divide(rows.sum(dim=1, keepdim=True), count, rounding)
    deviation = rows - mean
    squares = (deviation * deviation).sum(dim=1, keepdim=True)
    narrow = parameters.inputs["x"].dtype.bits <= 8
    variance = _variance(squares, count, numbers["variance_shift"] if narrow else None)
    root = _root(variance, parameters)
    stages = {"mean": mean, "variance": variance, "root": root}
    shift = NORMAL_PLACES
    if narrow:
        factor, shift = root * numbers["norm_multiplier"], shift + numbers["norm_shift"]
    else:
        factor = _factor(root, parameters)
        # the deviation of 16-bit codes has 17 bits; half of it fits 16, and one place less is shifted
        deviation, shift = deviation >> 1, shift - 1
        stages |= {"factor": factor, "deviation": deviation}
    end = 1 << (parameters.outputs["y"].dtype.bits - 1)
    normalized = shift_right(deviation * factor, shift, rounding).clamp(-end, end - 1)
    codes = _affine(normalized.reshape(x.shape), gamma, beta, parameters, family, channel_axis)
    return Staged(codes, {**stages, "normalized": normalized})


def root_mean_square_by_table(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, parameters: Parameters, count: int
) -> Staged:
    """Normalise by a table: floor the mean of squares, look up its inverse root, round half up, requantize; no epsilon.

    Stages, in rows of N: variance, root, factor, normalized, as in `normalize_by_table` with 16 bits, but without
    halving.
    """
    # no mean is subtracted, so the zero point must be
    rows = centred(x, parameters.inputs["x"]).reshape(-1, count)
    variance = _variance((rows * rows).sum(dim=1, keepdim=True), count, None)
    root = _root(variance, parameters)
    factor = _factor(root, parameters)
    end = 1 << (parameters.outputs["y"].dtype.bits - 1)
    normalized = shift_right(rows * factor, NORMAL_PLACES, "half_up").clamp(-end, end - 1)
    codes = _affine(normalized.reshape(x.shape), gamma, beta, parameters, "root_mean_square", -1)
    return Staged(codes, {"variance": variance, "root": root, "factor": factor, "normalized": normalized})


def _variance(squares: Tensor, count: int, shift: int | None) -> Tensor:
    """Return the floored mean of squares, or their sum shifted right; 0 for a negative shift, as in torch."""
    if shift is None:
        return squares // count
    return squares >> shift if shift >= 0 else torch.zeros_like(squares)


def _root(variance: Tensor, parameters: Parameters) -> Tensor:
    return shift_right(table_inverse_root(variance, parameters.tables["inverse_root"]), 31 - ROOT_PLACES, "half_up")


def _factor(root: Tensor, parameters: Parameters) -> Tensor:
    """Return the inverse root times the multiplier of the normalised codes."""
    numbers = parameters.numbers
    scaled = shift_right(root * numbers["norm_multiplier"], numbers["norm_shift"], parameters.platform.rounding)
    return scaled.clamp(0, FACTOR_MOST)


def _affine(
    normalized: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    parameters: Parameters,
    family: str,
    channel_axis: int,
) -> Tensor:
    acc = normalized if gamma is None else normalized * centred(gamma, parameters.constants["gamma"].params)
    if beta is not None:
        acc = acc + effective_bits(beta, parameters.platform.bias_effective_bits.get(family))
    return requantize_accumulator(acc, parameters, channel_axis=channel_axis)
