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
from quantizer.conformance.oracle import high_multiplied
from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Rescale

Array = NDArray[Any]
CHECK = "arithmetic"
F32 = np.float32


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
    return judge_equal(CHECK, trial, trial.got, wanted, made_of)


def sum_codes(trial: Trial, parts: Mapping[str, Array], rescale: Rescale) -> Array:
    """Return codes of a q31_double sum: each operand is shifted left and scaled, then their sum is scaled."""
    places = trial.target.platform.multiplier.places(trial.target.scheme.activation.bits)
    total: Any = 0
    for name, part in parts.items():
        # a single operand has no factor of its own; its multiplier leads to the output
        if len(rescale.factors) == 1:
            total = part
            continue
        fraction, exponent = math.frexp(rescale.factors[name])
        # Python's integers, because the shifted operand times 31 bits may leave int64
        shifted = part.astype(np.int64).astype(object) << places
        total = total + high_multiplied(shifted, int(fraction * 2**31), 31 - exponent)
    alone = len(rescale.factors) == 1
    scaled = high_multiplied(np.asarray(total).astype(np.int64), int(rescale.mantissa), int(rescale.shift), wraps=alone)
    return scaled + int(trial.output.zero_point)


def reduced_codes(trial: Trial, rescale: Rescale) -> Array:
    """Return codes of means and sums of raw codes under the variants that are replayed."""
    sums, terms = SUMS[trial.spec.quantization.family](trial), counts(trial)
    (params,), zero = trial.parameters.inputs.values(), int(trial.output.zero_point)
    if rescale.variant == "q31_folded":
        return high_multiplied(sums, int(rescale.mantissa), int(rescale.shift)) + zero
    factor, moved = F32(next(iter(rescale.factors.values()))), int(terms.max(initial=1)) * int(params.zero_point)
    scaled = (sums + terms * int(params.zero_point)).astype(F32) * factor
    return np.asarray(np.rint(scaled + (F32(zero) - F32(moved) * factor)))


REPLAYED: Mapping[str, Callable[[Trial, Rescale], Array]] = dict.fromkeys(
    ("q31_folded", "f32_mean_of_codes_half_even"), reduced_codes
)
"""Variants that are judged by the codes of their stages."""
