"""Arithmetic of LiteRT's kernels that round more than once: every declared stage is replayed in numpy on what was handed.

Sharing nothing with numerics. What is left for each element is one code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import restated, restated_litert
from quantizer.conformance.checks.elements import judge_codes
from quantizer.conformance.checks.window_sums import SUMS, counts
from quantizer.conformance.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Rescale

Array = NDArray[Any]
CHECK = "arithmetic"
F32 = np.float32
SIXTEEN = 16


def judged(trial: Trial, codes: Array, made_of: str) -> Verdict:
    """Judge output codes that must equal *codes*, once these are cut by the fused activation and saturated."""
    output = trial.output
    low, high = restated.activation_codes(
        trial.target.platform, trial.variant, trial.case.activation, (output.qmin, output.qmax), float(output.scale),
        int(output.zero_point),
    )  # fmt: skip
    wanted = np.clip(codes.astype(np.int64), low, high)
    return judge_codes(CHECK, trial, wanted, wanted, made_of=made_of)


def high_multiplied(
    values: Array, multiplier: int, shift: int, *, away: Array | bool = True, wraps: bool = True
) -> Array:
    """Return values * multiplier * 2**-shift as Python integers: a high multiply, then a shift whose ties go away or up.

    A multiplier of 1 and more shifts to the left first, in 32 bits that wrap where that is what the kernel has.
    """
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    held = values.astype(object)
    if left and wraps:
        held = ((held << left % 32) + 2**31) % 2**32 - 2**31
    elif left:
        held = held << left
    high = (held * multiplier + 2**30) >> 31
    if not right:
        return np.asarray(high)
    return np.asarray((high + (1 << (right - 1)) - ((high < 0) & away)) >> right)


def sum_codes(trial: Trial, parts: Mapping[str, Array], rescale: Rescale) -> Array:
    """Return codes of TensorFlow Lite's ADD and SUB, or of one operand: each part widened and scaled, then their sum."""
    places = trial.target.platform.multiplier.places(trial.target.scheme.activation.bits)
    total: Any = 0
    for name, part in parts.items():
        if len(rescale.factors) == 1:
            total = part
            continue
        fraction, exponent = math.frexp(rescale.factors[name])
        shifted = part.astype(np.int64).astype(object) << places
        total = total + high_multiplied(shifted, int(fraction * 2**31), 31 - exponent)
    alone = len(rescale.factors) == 1
    scaled = high_multiplied(np.asarray(total).astype(np.int64), int(rescale.mantissa), int(rescale.shift), wraps=alone)
    return scaled + int(trial.output.zero_point)


def reduced_codes(trial: Trial, rescale: Rescale) -> Array:
    """Return codes of MEAN, SUM and AVERAGE_POOL_2D under the variants that LiteRT alone has."""
    sums, terms = SUMS[trial.spec.quantization.family](trial), counts(trial)
    (params,), zero = trial.parameters.inputs.values(), int(trial.output.zero_point)
    raw, count = sums + terms * int(params.zero_point), int(terms.max(initial=1))
    match rescale.variant:
        case "raw_half_away":
            rounded = np.where(raw > 0, (2 * raw + terms) // (2 * terms), -((terms - 2 * raw) // (2 * terms)))
            return np.asarray(rounded)
        case "q31_folded":
            return high_multiplied(sums, int(rescale.mantissa), int(rescale.shift)) + zero
        case "q31_in_sixteens":
            return _in_sixteens(trial, raw, count)
        case _:
            return _in_float32(trial, raw, count, rescale)


def _in_sixteens(trial: Trial, raw: Array, count: int) -> Array:
    """Return codes of means of raw codes: the two zero points are one constant, rounded to a whole code before."""
    (params,), output = trial.parameters.inputs.values(), trial.output
    x, y = F32(float(params.scale)), F32(float(output.scale))
    multiplier, shift = restated_litert.fixed(float(x / (F32(count) * y)))
    moved = F32(int(params.zero_point)) * x / y
    constant = int(output.zero_point) - int(F32(moved + (F32(0.5) if moved > 0 else F32(-0.5))))
    axis = 1 if trial.spec.inputs["x"].spatial else raw.ndim - 1
    behind = np.arange(raw.shape[axis]) >= raw.shape[axis] // SIXTEEN * SIXTEEN
    away = behind.reshape([-1 if place == axis else 1 for place in range(raw.ndim)])
    return high_multiplied(raw, multiplier, shift, away=away) + constant


def _in_float32(trial: Trial, raw: Array, count: int, rescale: Rescale) -> Array:
    """Return codes of a float32 product of raw sums plus a float32 constant: XNNPACK's, ties to even, or LiteRT's SUM."""
    (params,), zero = trial.parameters.inputs.values(), int(trial.output.zero_point)
    factor = F32(next(iter(rescale.factors.values())))
    scaled = raw.astype(F32) * factor
    if rescale.variant == "f32_raw_even":
        return np.asarray(np.rint(scaled + (F32(zero) - F32(count * int(params.zero_point)) * factor)))
    value = (scaled + F32(-int(params.zero_point)) * factor * F32(count)).astype(np.float64)
    return np.asarray(np.sign(value) * np.floor(np.abs(value) + 0.5) + zero)


def leaky_codes(trial: Trial) -> Array:
    """Return codes of both sides of a leaky rectifier under their own multipliers."""
    numbers, half_up = trial.parameters.numbers, trial.variant == "q8_half_up"
    c = next(iter(trial.centred.values())).numpy().astype(np.int64)

    def side(name: str) -> Array:
        multiplier, shift = numbers[name], numbers[f"{name}_shift"]
        if half_up:
            return (c * multiplier + (1 << (shift - 1))) >> shift
        return high_multiplied(c, multiplier, shift).astype(np.int64)

    return np.where(c >= 0, side("positive"), side("negative")) + int(trial.output.zero_point)


def grid_codes(trial: Trial) -> Array | None:
    """Return 16-bit codes of sigmoid or tanh from the provided table on its grid; None for gemmlowp's functions."""
    numbers, tanh = trial.parameters.numbers, trial.spec.quantization.family == "hyperbolic_tangent"
    multiplier, shift = numbers["input_multiplier"], numbers["input_shift"]
    x = next(iter(trial.codes.values())).numpy()
    if multiplier == 0:
        return None
    product = (x * multiplier + ((1 << shift) >> 1) + 2**31) % 2**32 - 2**31
    place = product >> shift
    segment = 256 if tanh else 512
    entries = trial.parameters.tables["logistic"].entries.numpy()
    index, rest = np.divmod(np.abs(place), segment)
    held = np.minimum(index, len(entries) - 2)
    value = (entries[held] * (segment - rest) + entries[held + 1] * rest) * (512 // segment)
    value = np.where(index >= len(entries) - 1, (65535 if tanh else 65534) * 512, value)
    if tanh:
        value = value // 2
        return np.where(place >= 0, value - 2**23 + 128, 2**23 - value + 127) >> 8
    return np.where(place >= 0, value + 512, 2**25 - value + 511) >> 10


def float32_softmax_codes(trial: Trial, exponentials: Array) -> Array:
    """Return 8-bit codes of a softmax that adds in float32, one after the other, and multiplies by 1 / (sum * scale)."""
    parts = np.moveaxis(exponentials.astype(F32), trial.axis, 0)
    total = np.zeros(parts.shape[1:], F32)
    for part in parts:
        total = total + part
    share = parts * (F32(1.0) / (total * F32(float(trial.output.scale))))
    return np.moveaxis(np.floor(share + F32(0.5)), 0, trial.axis) + int(trial.output.zero_point)


def wide_softmax_codes(trial: Trial) -> Array:
    """Return 16-bit codes of a softmax from the provided tables of exponentials and of reciprocals."""
    numbers, tables = trial.parameters.numbers, trial.parameters.tables
    codes = trial.codes["x"].numpy().astype(np.int64)
    distance = codes - codes.max(axis=trial.axis, keepdims=True)
    place = high_multiplied(distance, numbers["input_multiplier"], numbers["input_shift"]).astype(np.int64) + 32767
    exponentials = _between(tables["exp"].entries.numpy(), place)
    total = exponentials.sum(axis=trial.axis, keepdims=True)
    bits = np.frompyfunc(lambda v: max(1, int(v).bit_length()), 1, 1)(total).astype(np.int64)
    place = (((total << (31 - bits)) + 2**13) >> 14) - 3 * 2**15
    product = exponentials * _between(tables["reciprocal"].entries.numpy(), place)
    return np.asarray(np.maximum((product + ((np.int64(1) << (bits - 1)) >> 1)) >> (bits - 1), 0))


def _between(entries: Array, place: Array) -> Array:
    index, rest = np.divmod(np.clip(place, -32768, 32767) + 32768, 128)
    return np.asarray(entries[index] + ((entries[index + 1] - entries[index]) * rest + 64) // 128)


REPLAYED: Mapping[str, Callable[[Trial, Rescale], Array]] = {
    "raw_half_away": reduced_codes,
    "q31_folded": reduced_codes,
    "q31_in_sixteens": reduced_codes,
    "f32_raw_even": reduced_codes,
    "f32_raw_away": reduced_codes,
}
"""Variants that are judged by the codes of their stages."""
