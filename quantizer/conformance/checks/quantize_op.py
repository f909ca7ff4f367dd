"""The check `arithmetic` for `quantize`: it replays the declared quantizer in its float type."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.pairs import of_floats, quotient
from quantizer.conformance.checks.declared_quantizer import steps_in_float32
from quantizer.conformance.checks.float32_codes import F32
from quantizer.conformance.checks.requantized import Declared, Real, rounded_once
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
F32_LARGEST = float(np.finfo(F32).max)


def quantized_reals(trial: Trial, name: str) -> Verdict:
    """Judge the codes of input *name*: divide by the step with the declared float operations, then round once.

    Infinities saturate; NaN may become any code.
    """
    quantizer, output = trial.target.platform.runtime_quantizer, trial.output
    # infinities saturate, so the largest float32 number stands for them and keeps the arithmetic finite
    x, scale, zero = _finite(trial.tensors[name].numpy(), F32_LARGEST), float(output.scale), int(output.zero_point)
    # an infinite allowance accepts every code
    anything = np.where(np.isnan(x), np.inf, 0.0)
    x = np.nan_to_num(x)
    declared = Declared(quantizer.rounding, quantizer.zero_point == "before")
    if quantizer.operation == "exact":
        return rounded_once(
            trial,
            Real(
                x.astype(np.float64) / scale,
                quotient(x.astype(np.float64), scale, lambda i: Fraction(float(x[i])) / Fraction(scale)),
            ),
            declared,
            extra=anything,
            what="the real number in steps",
        )
    steps = None if output.steps is None else np.asarray(float(output.steps))
    real = steps_in_float32(x, np.asarray(scale), steps, np.asarray(zero), quantizer)
    return rounded_once(
        trial,
        Real(real, of_floats(real)),
        declared,
        extra=anything,
        what=f"the real number in steps ({quantizer.operation})",
    )


def _finite(values: Array, most: float) -> Array:
    """Return *values* clamped to [-most, most], infinities included."""
    return np.clip(values, -most, most)
