"""arithmetic of an operator that reads real numbers: the quantizer that the platform declares, restated in its own float type."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.float32_codes import F32, fused
from quantizer.conformance.checks.requantized import Declared, rounded_once
from quantizer.conformance.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
F32_LARGEST = float(np.finfo(F32).max)
BEYOND_CODES = 2.0**60
"""More steps than any format has codes; still exact with a zero point added."""


@np.errstate(over="ignore")
def quantized_reals(trial: Trial, name: str) -> Verdict:
    """Judge the codes of input *name*: its numbers in steps of the output, one declared float operation each, rounded once.

    Infinities saturate; NaN may become any code.
    """
    quantizer, output = trial.target.platform.runtime_quantizer, trial.output
    x, scale, zero = _finite(trial.tensors[name].numpy(), F32_LARGEST), float(output.scale), int(output.zero_point)
    anything = np.where(np.isnan(x), np.inf, 0.0)
    x = np.nan_to_num(x)
    first = quantizer.zero_point == "before"
    declared = Declared(quantizer.rounding, first)
    if quantizer.operation == "exact":
        return rounded_once(
            trial, x.astype(np.float64) / scale, declared, anything,
            lambda i: Fraction(float(x[i])) / Fraction(scale), lambda _: {}, "the real number in steps",
        )  # fmt: skip
    held = _steps(trial, x)
    if first:
        inverse = np.asarray(F32(1) / F32(scale))
        held = (
            fused(x, inverse, np.asarray(F32(zero))) if quantizer.operation == "inverse_float32" else held + F32(zero)
        )
    real = _finite(held.astype(np.float64), BEYOND_CODES) - (zero if first else 0)
    return rounded_once(
        trial, real, declared, anything, lambda i: Fraction(float(real[i])), lambda _: {},
        f"the real number in steps ({quantizer.operation})",
    )  # fmt: skip


def _steps(trial: Trial, x: Array) -> Array:
    """Return float32 numbers in steps of the output, as the platform's operation gives them."""
    operation, output = trial.target.platform.runtime_quantizer.operation, trial.output
    scale = F32(float(output.scale))
    if operation == "divide_float32":
        return np.asarray(x / scale)
    if operation == "multiply_float32" and output.steps is not None:
        return np.asarray(x * F32(float(output.steps)))
    return np.asarray(x * (F32(1) / scale))


def _finite(values: Array, most: float) -> Array:
    """Return *values* with those beyond *most*, infinities too, cut there."""
    return np.clip(values, -most, most)
