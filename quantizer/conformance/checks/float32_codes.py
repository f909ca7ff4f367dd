"""Judges codes of float32 arithmetic: one right code if the order of operations is known, else an interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.trials.elements import Allowed, judge_codes
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
CHECK = "arithmetic"
F32 = np.float32
UNIT = 2.0**-24
EXACT_FLOAT32 = 2.0**24


def fused(a: Array, b: Array, c: Array) -> Array:
    """Return float32 `a * b + c` rounded once: the float64 sum is made odd where it is not exact."""
    product, addend = a.astype(np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    total = product + addend
    # Knuth's error-free sum: *rest* is what the float64 sum lost
    part = total - product
    rest = (product - (total - part)) + (addend - part)
    # rounded to odd, so that rounding to float32 is the only rounding that shows
    odd = np.where((total.view(np.int64) & 1 == 0) & (rest != 0), np.nextafter(total, np.copysign(np.inf, rest)), total)
    return np.asarray(odd.astype(F32))


def one_code(trial: Trial, rounded: Array, real: Array, made_of: str) -> Verdict:
    """Judge codes that equal *rounded*, saturated and activated; *real*: the unrounded values without zero point."""
    output, zero = trial.output, int(trial.output.zero_point)
    least = max(output.qmin, zero) if trial.case.activation != "none" else output.qmin
    wanted = np.clip(np.nan_to_num(rounded, nan=0.0), least, output.qmax).astype(np.int64)
    allowed = Allowed(
        wanted,
        wanted,
        value=np.clip(real, least - zero, output.qmax - zero),
        allowance=np.full(wanted.shape, 0.5),
        zero=zero,
        made_of=made_of,
        detail=lambda i: {"exact": f"{float(real[i]):.9g} + {zero}"},
    )
    return judge_codes(CHECK, trial, allowed)


def numbers(trial: Trial) -> tuple[F32, F32]:
    """Return float32 1 / s_y and z_y."""
    return F32(1) / F32(float(trial.output.scale)), F32(int(trial.output.zero_point))


def adds_after(trial: Trial) -> bool:
    """Return whether kernels of one element add the zero point after rounding, as the platform's quantizer does."""
    return trial.target.platform.quantizer.zero_point == "after"


def ended(trial: Trial, steps: Array) -> tuple[Array, Array]:
    """Return the codes of float32 *steps* in kernels of one element, and the unrounded numbers without z_y."""
    zero = F32(int(trial.output.zero_point))
    if adds_after(trial):
        return np.rint(steps) + zero, steps.astype(np.float64)
    held = steps + zero
    return np.rint(held), held.astype(np.float64) - float(zero)


def quantized(trial: Trial, values: Array, made_of: str) -> Verdict:
    """Judge codes of float32 values: `value * (1 / s_y) + z_y` is rounded once to float32, then to a code.

    If the platform adds z_y after rounding, the product is rounded to float32 and to a code before z_y is added.
    """
    inverse, zero = numbers(trial)
    if adds_after(trial):
        steps = values.astype(F32) * inverse
        return one_code(trial, np.rint(steps) + zero, steps.astype(np.float64), f"{made_of}, z_y after rounding")
    held = fused(values, np.asarray(inverse), np.asarray(zero))
    return one_code(trial, np.rint(held), held.astype(np.float64) - float(zero), made_of)


def short(trial: Trial, scales: list[float], magnitudes: Array) -> bool:
    """Return whether float32 holds every partial sum: scales are powers of two, sums are short."""
    powers = all(math.frexp(scale)[0] == 0.5 for scale in (*scales, float(trial.output.scale)))
    return powers and float(magnitudes.max(initial=0.0)) < EXACT_FLOAT32


def bounded(trial: Trial, real: Array, magnitude: Array, operations: int) -> Verdict:
    """Judge codes of a real value computed in float32 with *operations* roundings of numbers up to *magnitude*."""
    scale, zero, output = float(trial.output.scale), int(trial.output.zero_point), trial.output
    value = real / scale
    extra = UNIT * (operations * magnitude / scale + 3 * np.abs(value) + abs(zero))
    low, high = code_interval(
        value,
        e_over_s=extra,
        zero_point=zero,
        qmin=output.qmin,
        qmax=output.qmax,
        rounding="half_even",
        zero_point_first=not adds_after(trial),
    )
    allowed = Allowed(
        low,
        high,
        value=value,
        allowance=0.5 + extra,
        zero=zero,
        made_of=f"half_even, and {operations} roundings of float32 before",
    )
    return judge_codes(CHECK, trial, allowed)
