"""Error of a normalisation's rounding stages, in output codes, from declared formats only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.norm_rows import neighbours_of, row_codes, row_means, rows
from quantizer.conformance.expected import norms as expected_norm
from quantizer.conformance.trials.trial import Trial

Array = NDArray[Any]
ROOT_PLACES = 15
"""The number of binary places of the inverse root, whose largest value is 1."""
NORMAL_PLACES = 8
"""The product of inverse root and deviation is shifted right by this many bits."""
FLOATS = 1 + 2.0**-40
"""A factor that covers the float64 error of the interval ends that are computed here."""
NEAR_TIE = 2.0**-30
"""Within this distance of a tie a product may round either way. It exceeds the float64 error of a 16-bit code."""


def table_error(entries: int, bits: int) -> float:
    """Return the relative error of 1 / sqrt(m), m in [1, 4], by chords in a table of entries of *bits* bits.

    Interpolation adds at most h**2 / 8 * f'' / f = 3/4 / m**2 * h**2 / 8. Rounding an entry adds half a unit, relative
    to at least 1/2; saturating the first entry adds a unit.
    """
    width = 3.0 / (entries - 1)
    return 0.75 * width**2 / 8 + 2.0 * 2.0 ** -(bits - 1)


def affine(trial: Trial, name: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return centred codes and scales of gamma or beta for every element; an absent gamma is 1, an absent beta 0."""
    if name not in trial.tensors:
        return np.full(shape, int(name == "gamma")), np.ones(shape)
    codes = neighbours_of(trial, name, trial.centred[name].numpy().astype(np.int64))
    scale = trial.broadcast(name, trial.qparams(name).scale)
    return np.broadcast_to(codes, shape), np.broadcast_to(
        neighbours_of(trial, name, scale) if scale.ndim else scale, shape
    )


def effective_beta(trial: Trial, shape: tuple[int, ...]) -> Array:
    """Return the codes of beta as the platform reads them: with cleared low bits where it declares effective bits."""
    codes = affine(trial, "beta", shape)[0]
    bits = trial.target.platform.bias_effective_bits.get(trial.spec.quantization.family)
    return expected_norm.effective(codes, bits)


def is_integer(trial: Trial) -> bool:
    """Return whether the platform reads inverse roots from a table and shifts.

    Otherwise its arithmetic is exact except for the root. The multiplier `multiplier_shift` alone does not show it. The
    platform's own rule must provide a table. If the operator has no rule, its declaration is trusted.
    """
    platform, rule = trial.target.platform, trial.built_in
    shifts = platform.requantize.get(trial.spec.quantization.family, platform.requantize["default"])
    return shifts == "multiplier_shift" and (rule is None or "inverse_root" in rule.tables)


def lines(trial: Trial) -> tuple[Array, Array, int]:
    """Return the deviations and the variance of the codes of x, in steps of x and rows of N elements, and N."""
    codes = row_codes(trial).astype(np.float64)
    deviation = codes - row_means(trial, codes)
    return deviation, (deviation**2).mean(axis=1, keepdims=True), codes.shape[1]


def standardized(trial: Trial) -> Array:
    """Return deviation / standard deviation of the codes, without epsilon; 0 for constant rows."""
    deviation, variance, _ = lines(trial)
    standard = deviation / np.sqrt(np.where(variance > 0, variance, 1.0))
    return np.asarray(standard.reshape(trial.output_shape))


def normalized_interval(trial: Trial, *, declared: bool, epsilon: float = 0.0) -> tuple[Array, Array]:
    """Return the interval of the normalised value, in its codes, that the platform's formats allow.

    An integer mean moves the deviations, and so their squares, by its distance from the exact mean. The variance is
    floored. Its inverse root comes from the table: with 8 bits in units of 2**-15; with 16 bits it is rounded to the
    declared significant bits, and so is the factor. Deviations of 16 bits are halved and floored. The product is
    rounded to a neighbouring code, or not rounded, and clamped. *epsilon*: the most that may be added to the variance.
    *declared*: 16-bit values have the scale of their codes even if another multiplier is provided, and rounding counts
    as half a code either way, since epsilon moves the value.
    """
    bits, numbers = trial.target.scheme.activation.bits, trial.parameters.numbers
    deviation, variance, count = lines(trial)
    mean = trial.spec.error_model.centred
    exact_mean = row_means(trial, row_codes(trial).astype(np.float64))
    # an integer mean is at most this far from the exact one
    moved = np.abs(exact_mean - np.rint(exact_mean))
    squares = count * (variance + moved**2)
    added = count * epsilon / float(trial.parameters.inputs["x"].scale) ** 2
    # 3 * 64 + 1 entries: m from 1 to 4 in steps of 1/64
    table = table_error(193, ROOT_PLACES + 1)
    wanted = expected_norm.table_numbers(count, trial.target.scheme, trial.target.platform, mean=mean)
    if bits <= 8 and mean:
        unit = 2.0 ** numbers.get("variance_shift", wanted["variance_shift"])
        gain = numbers.get("norm_multiplier", 1) * 2.0 ** (
            ROOT_PLACES - NORMAL_PLACES - numbers.get("norm_shift", wanted["norm_shift"])
        )
        absolute, relative = 2.0 ** -(ROOT_PLACES + 1), table
    else:
        unit = float(count)
        steps = expected_norm.normalized(count, trial.target.scheme, trial.target.platform).scale
        own = numbers.get("norm_multiplier", 0) * 2.0 ** (ROOT_PLACES - NORMAL_PLACES - numbers.get("norm_shift", 0))
        gain = 1.0 / float(steps) if declared or not own else own
        format_bits = trial.target.platform.significant_bits.get("inverse_root")
        significant = int(format_bits({"activation_bits": bits})) if format_bits else bits
        absolute, relative = 0.0, table + 2 * 2.0**-significant
    # the variance is floored, and a variance of 0 is read as 1, whose inverse root is the largest entry
    least, most = np.floor(squares / unit / FLOATS), np.floor((squares + added) / unit * FLOATS)
    high = np.minimum(1.0, 1.0 / np.sqrt(np.maximum(least, 1.0))) * (1 + relative) * FLOATS + absolute
    low = np.minimum(1.0, 1.0 / np.sqrt(np.maximum(most, 1.0))) * (1 - relative) / FLOATS - absolute
    # halving floors, which lowers a deviation by at most one step
    halved = float(bits > 8 and mean)
    ends = [end * root * gain for end in (deviation - moved - halved, deviation + moved) for root in (low, high)]
    end, low, high = 2.0 ** (bits - 1), np.minimum.reduce(ends), np.maximum.reduce(ends)
    # declared: half a code either way; otherwise the nearest codes, where a product close to a tie may go either way
    first, last = (
        (low - 0.5, high + 0.5) if declared else (np.ceil(low - 0.5 - NEAR_TIE), np.floor(high + 0.5 + NEAR_TIE))
    )
    outer = np.minimum(low, first), np.maximum(high, last)
    below, above = (np.clip(ends_, -end, end - 1).reshape(trial.output_shape) for ends_ in outer)
    return below, above


def final_interval(trial: Trial, *, declared: bool, epsilon: float = 0.0) -> tuple[Array, Array]:
    """Return the ends of (normalized * gamma + beta) times the provided multiplier, in steps of the output.

    If none is provided, the real ratio of scales is used, known to as many bits as the activation has.
    """
    low, high = normalized_interval(trial, declared=declared, epsilon=epsilon)
    shape, rescale = trial.output_shape, trial.parameters.rescale
    gamma, gamma_scale = affine(trial, "gamma", shape)
    beta, loss = effective_beta(trial, shape), 0.0
    if rescale is None:
        scale = expected_norm.normalized(lines(trial)[2], trial.target.scheme, trial.target.platform).scale
        ratio, loss = gamma_scale * float(scale) / float(trial.output.scale), 2.0**-trial.target.scheme.activation.bits
    else:
        real = rescale.mantissa.numpy() * np.exp2(-rescale.shift.numpy().astype(np.float64))
        ratio = np.broadcast_to(neighbours_of(trial, "gamma", real) if real.ndim else real, shape)
    ends = [(end * gamma + beta) * ratio * (1 + part) for end in (low, high) for part in {-loss, loss}]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def exact_error(trial: Trial) -> Array:
    """Return e of the exact platform in steps of the output: a root of 32 bits, floored, and a quotient of 2**-30."""
    gamma, scale = affine(trial, "gamma", trial.output_shape)
    share = (np.abs(standardized(trial)) + 1.0) * 2.0**-31
    return np.asarray(share * np.abs(gamma * scale) / float(trial.output.scale))


def norm_stage_error(trial: Trial) -> Array:
    """Return the error of all stages and of the provided numbers, in output steps, around the value without epsilon."""
    if not is_integer(trial):
        return exact_error(trial)
    shape, scale = trial.output_shape, float(trial.output.scale)
    (gamma, gamma_scale), (beta, beta_scale) = (affine(trial, name, shape) for name in ("gamma", "beta"))
    centre = (standardized(trial) * gamma * gamma_scale + beta * beta_scale) / scale
    low, high = final_interval(trial, declared=True)
    return np.asarray(np.maximum(np.maximum(high - centre, centre - low), 0.0) * FLOATS)


def norm_enclosure(trial: Trial, operands: dict[str, tuple[Array, Array]]) -> Interval:
    """Return the enclosure of the reference over the intervals of x, gamma and beta."""
    x, dx = operands["x"]

    def known(name: str) -> Interval | None:
        if name not in operands:
            return None
        ends = (
            np.broadcast_to(neighbours_of(trial, name, end), x.shape) for end in np.broadcast_arrays(*operands[name])
        )
        return Interval.around(*(rows(trial, end) for end in ends))

    found = bounds.normalization(
        rows(trial, x),
        rows(trial, np.broadcast_to(dx, x.shape)),
        1,
        eps=float(trial.bound["epsilon"]),
        centred=trial.spec.error_model.centred,
        gamma=known("gamma"),
        beta=known("beta"),
    )
    return found.moved(lambda end: end.reshape(x.shape))


def norm_float_radius(trial: Trial) -> Array:
    """Return how far a float32 forward may be from y in any order of additions. Without a mean, c is x and a is 0.

    With u = 2**-24, g(n) = n*u / (1 - n*u), c the exact deviations, s = sqrt(var + eps):
    the mean is off by m <= g(N) * mean|x|, so a deviation by a <= m + u * (|c| + m); the root mean square of computed
    deviations by rms(a) (triangle), and computing the variance, adding eps and taking the root costs half of g(N + 3)
    and two ulps of the root: |s' - s| <= t = rms(a) + (s + rms(a)) * g(N/2 + 4). Then y' - y <= (a + |y| t) / (s - t),
    where s - t is at least its value for eps alone. Three more roundings follow, then one each for gamma and beta.
    """
    x, eps = rows(trial, trial.doubles["x"].numpy()), float(trial.bound["epsilon"])
    gamma, beta = (
        neighbours_of(trial, name, trial.doubles[name].numpy()) if name in trial.doubles else None
        for name in ("gamma", "beta")
    )
    count = x.shape[1]
    deviation = x - row_means(trial, x)
    s = np.sqrt((deviation**2).mean(axis=1, keepdims=True) + eps)
    mean = lost(count) * np.abs(row_means(trial, np.abs(x)))
    # without a mean nothing is subtracted, so no deviation is off
    a = (mean + UNIT * (np.abs(deviation) + mean)) * trial.spec.error_model.centred
    rms = np.sqrt((a * a).mean(axis=1, keepdims=True))
    flushed = math.sqrt(np.finfo(np.float32).smallest_normal)
    t = rms + (s + rms) * lost(count // 2 + 5) + flushed
    least = np.maximum(s - t, math.sqrt(eps) * (1 - lost(count // 2 + 5)))
    y = np.abs(deviation) / s
    away = (a + y * t) / least
    away = away + lost(4) * (y + away)
    y, away = (part.reshape(trial.output_shape) for part in (y, away))
    size = 1.0 if gamma is None else np.abs(gamma)
    shift = 0.0 if beta is None else np.abs(beta)
    half_ulp = np.spacing(np.abs(trial.y).astype(np.float32)).astype(np.float64) / 2
    return np.asarray(size * away + lost(3) * (size * (y + away) + shift) + half_ulp)
