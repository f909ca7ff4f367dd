"""Fixed-point variants that round more than once: every declared step is replayed in numpy on the provided numbers.

Nothing is shared with `numerics`. Exactly one code per element is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.window_sums import SUMS, counts
from quantizer.conformance.expected import parameters as expected_parameters
from quantizer.conformance.oracle import fixed, high_multiplied
from quantizer.conformance.trials.elements import judge_codes
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Rescale

Array = NDArray[Any]
CHECK = "arithmetic"
F32 = np.float32
SIXTEEN = 16


def judged(trial: Trial, codes: Array, made_of: str) -> Verdict:
    """Judge output codes: they equal *codes* after the fused activation and saturation."""
    output = trial.output
    low, high = expected_parameters.activation_codes(
        trial.target.platform,
        trial.variant,
        trial.case.activation,
        (output.qmin, output.qmax),
        float(output.scale),
        int(output.zero_point),
    )
    wanted = np.clip(codes.astype(np.int64), low, high)
    return judge_codes(CHECK, trial, wanted, wanted, made_of=made_of)


def sum_codes(trial: Trial, parts: Mapping[str, Array], rescale: Rescale) -> Array:
    """Return codes of a q31_double sum: each operand is shifted left and scaled, then their sum is scaled."""
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
    """Return codes of means and sums of raw codes under the variants that are replayed."""
    sums, terms = SUMS[trial.spec.quantization.family](trial), counts(trial)
    (params,), zero = trial.parameters.inputs.values(), int(trial.output.zero_point)
    raw, count = sums + terms * int(params.zero_point), int(terms.max(initial=1))
    match rescale.variant:
        case "mean_of_codes_half_away":
            rounded = np.where(raw > 0, (2 * raw + terms) // (2 * terms), -((terms - 2 * raw) // (2 * terms)))
            return np.asarray(rounded)
        case "q31_folded":
            return high_multiplied(sums, int(rescale.mantissa), int(rescale.shift)) + zero
        case "q31_mean_in_16_lanes":
            return _in_16_lanes(trial, raw, count)
        case _:
            return _in_float32(trial, raw, count, rescale)


def _in_16_lanes(trial: Trial, raw: Array, count: int) -> Array:
    """Return codes of means of raw codes: the two zero points are one constant, rounded to a whole code before."""
    (params,), output = trial.parameters.inputs.values(), trial.output
    x, y = F32(float(params.scale)), F32(float(output.scale))
    multiplier, shift = fixed(float(x / (F32(count) * y)))
    moved = F32(int(params.zero_point)) * x / y
    constant = int(output.zero_point) - int(F32(moved + (F32(0.5) if moved > 0 else F32(-0.5))))
    axis = 1 if trial.spec.inputs["x"].spatial else raw.ndim - 1
    behind = np.arange(raw.shape[axis]) >= raw.shape[axis] // SIXTEEN * SIXTEEN
    away = behind.reshape([-1 if place == axis else 1 for place in range(raw.ndim)])
    return high_multiplied(raw, multiplier, shift, away=away) + constant


def _in_float32(trial: Trial, raw: Array, count: int, rescale: Rescale) -> Array:
    """Return codes of a float32 product of raw sums plus a float32 constant, ties to even or away from zero."""
    (params,), zero = trial.parameters.inputs.values(), int(trial.output.zero_point)
    factor = F32(next(iter(rescale.factors.values())))
    scaled = raw.astype(F32) * factor
    if rescale.variant == "f32_mean_of_codes_half_even":
        return np.asarray(np.rint(scaled + (F32(zero) - F32(count * int(params.zero_point)) * factor)))
    value = (scaled + F32(-int(params.zero_point)) * factor * F32(count)).astype(np.float64)
    return np.asarray(np.sign(value) * np.floor(np.abs(value) + 0.5) + zero)


REPLAYED: Mapping[str, Callable[[Trial, Rescale], Array]] = {
    "mean_of_codes_half_away": reduced_codes,
    "q31_folded": reduced_codes,
    "q31_mean_in_16_lanes": reduced_codes,
    "f32_mean_of_codes_half_even": reduced_codes,
    "f32_mean_of_codes_half_away": reduced_codes,
}
"""Variants that are judged by the codes of their stages."""
