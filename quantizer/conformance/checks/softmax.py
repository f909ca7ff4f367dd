"""The check `arithmetic` for softmax. Exponentials, reciprocal or quotient, and output: each from the codes before."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.checks.multiplier_rules import is_replaced
from quantizer.conformance.checks.requantized import FLOAT32_UNIT
from quantizer.conformance.kinds import has
from quantizer.conformance.trials.elements import Allowed, exact_value, judge_codes, judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.variants import Variant
from quantizer.core.verdict import Verdict, failure, inconclusive
from quantizer.numerics.qparams import Table

Array = NDArray[Any]
CHECK = "arithmetic"
QUOTIENT_FIRST: Variant = "quotient_first"
Exact = Callable[[tuple[int, ...]], Fraction]


def softmax_arithmetic(trial: Trial) -> Verdict:
    """Judge the exponentials, then the reciprocal or quotient if there is one, then the output."""
    table = trial.parameters.tables.get("exp")
    if table is None:
        return inconclusive(CHECK, "no exponentials were provided")
    stages = trial.outcome.stages
    if "exp" not in stages and (_is_free(trial) or table.entries.dtype.is_floating_point):
        return _without_stages(trial, table)
    top, bottom = _prescribed_exponentials(trial, table)
    wanted = np.floor_divide(top, bottom)
    if "exp" not in stages:
        return _hidden_stages(trial, wanted)
    got = stages["exp"].numpy()
    first = judge_equal(CHECK, trial, got, wanted, "the provided table, interpolated down", tensor="exp")
    if first.failing:
        return first
    total = got.astype(np.int64).sum(axis=trial.axis, keepdims=True)
    if "reciprocal" in stages:
        return _from_reciprocal(trial, got, total, stages["reciprocal"].numpy())
    if "quotient" in stages:
        return _from_quotient(trial, got, total, stages["quotient"].numpy())
    return _from_sum(trial, got, total)


def _prescribed_exponentials(trial: Trial, table: Table) -> tuple[Array, int]:
    """Return (numerators, denominator) of the table's value at each code's distance from the largest.

    Entry i belongs to the distance `first + i * step`. Between entries the table is linear; the last entry repeats, and
    distances outside the table have its end values.
    """
    codes = trial.codes["x"].numpy()
    distance = codes - codes.max(axis=trial.axis, keepdims=True)
    entries = np.append(table.entries.numpy(), table.entries.numpy()[-1])
    if table.entries.dtype.is_floating_point:
        return entries[np.clip(-distance, 0, table.entries.numel() - 1)], 1
    step = abs(table.step)
    place = (distance - table.first) if table.step > 0 else (table.first - distance)
    index, part = np.divmod(np.clip(place, 0, table.entries.numel() * step - 1), step)
    entries = entries.astype(np.int64)
    return entries[index] * step + (entries[index + 1] - entries[index]) * part, step


def _mode(trial: Trial) -> RoundingMode:
    declared = trial.target.platform.requantize.get(trial.spec.quantization.family)
    # the platform may declare a rounding for softmax alone
    return "half_up" if declared == "half_up" else trial.target.platform.rounding


def final_codes(
    trial: Trial, value: Array, extra: Array | float, exact: Exact, made_of: str, magnitude: Array | float = 0.0
) -> Verdict:
    """Judge the output codes of *value*, in steps without the zero point; *magnitude*: size of the cancelling terms."""
    output = trial.output
    low, high = code_interval(
        value,
        e_over_s=extra,
        magnitude=magnitude,
        zero_point=int(output.zero_point),
        qmin=output.qmin,
        qmax=output.qmax,
        rounding=_mode(trial),
        exact=exact,
    )
    spread = 0.5 + np.broadcast_to(np.asarray(extra), value.shape)
    allowed = Allowed(
        low,
        high,
        value=value,
        allowance=spread,
        zero=int(output.zero_point),
        made_of=made_of,
        detail=exact_value(value, int(output.zero_point)),
    )
    return judge_codes(CHECK, trial, allowed)


def _from_sum(trial: Trial, exponentials: Array, total: Array) -> Verdict:
    scale = float(trial.output.scale)
    wide = np.broadcast_to(total, exponentials.shape)
    value = exponentials / (wide * scale)

    def exact(index: tuple[int, ...]) -> Fraction:
        return Fraction(int(exponentials[index]), int(wide[index])) / Fraction(scale)

    return final_codes(trial, value, 0.0, exact, f"{_mode(trial)} of exp / sum / scale")


def _is_free(trial: Trial) -> bool:
    """Return whether only shown stages can be judged: the rule is a plugin's, or the table holds powers of two."""
    return is_replaced(trial) or has(trial.parameters, "powers")


def _hidden_stages(trial: Trial, exponentials: Array) -> Verdict:
    """Judge output codes without shown stages: replay the stages on provided numbers, in the platform's order."""
    total = exponentials.astype(np.int64).sum(axis=trial.axis, keepdims=True)
    if not has(trial.parameters, "scaled_result"):
        return _from_sum(trial, exponentials, np.maximum(total, 1))
    if trial.variant == QUOTIENT_FIRST:
        return _from_quotient(trial, exponentials, total, _quotient(trial, exponentials, total)[0])
    return _from_reciprocal(trial, exponentials, total, _reciprocal(trial, total)[0])


def _reciprocal(trial: Trial, total: Array) -> tuple[Array, int]:
    """Return `multiplier * 2**e / sum`, rounded down, and e."""
    multiplier = trial.parameters.numbers["multiplier"]
    enlarge = _places(trial, multiplier)
    return np.floor_divide(np.full_like(total, multiplier << enlarge), np.maximum(total, 1)), enlarge


def _places(trial: Trial, dividend: int) -> int:
    """Return by how many places a dividend of at most *dividend* is enlarged, so that it stays below 2**31.

    Below 2**30 if the largest exponential is 1, as in the original.
    """
    base = 30 if int(trial.parameters.tables["exp"].entries.max()) == 1 else 31
    return base - math.ceil(math.log2(max(dividend, 1)))


def _quotient(trial: Trial, exponentials: Array, total: Array) -> tuple[Array, int]:
    """Return `exp * 2**e / sum`, rounded half up, and e."""
    enlarge = _places(trial, int(trial.parameters.tables["exp"].entries.max()))
    wide = np.broadcast_to(np.maximum(total, 1), exponentials.shape)
    # half up: (2 a + b) // 2 b
    return np.floor_divide(2 * (exponentials.astype(np.int64) << enlarge) + wide, 2 * wide), enlarge


def _from_reciprocal(trial: Trial, exponentials: Array, total: Array, reciprocal: Array) -> Verdict:
    shift = trial.parameters.numbers["shift"]
    wanted, enlarge = _reciprocal(trial, total)
    verdict = judge_equal(CHECK, trial, reciprocal, wanted, "multiplier * 2**e / sum, down", tensor="reciprocal")
    if verdict.failing:
        return verdict
    value = exponentials * reciprocal * 2.0 ** -(shift + enlarge)
    wide = np.broadcast_to(reciprocal, exponentials.shape)
    return final_codes(
        trial,
        value,
        0.0,
        lambda i: Fraction(int(exponentials[i]) * int(wide[i])) / Fraction(2) ** (shift + enlarge),
        f"{_mode(trial)} of exp * reciprocal * 2**-n",
    )


def _from_quotient(trial: Trial, exponentials: Array, total: Array, quotient: Array) -> Verdict:
    numbers = trial.parameters.numbers
    wanted, enlarge = _quotient(trial, exponentials, total)
    verdict = judge_equal(CHECK, trial, quotient, wanted, "exp * 2**e / sum, half_up", tensor="quotient")
    if verdict.failing:
        return verdict
    shift = numbers["shift"] + enlarge
    value = quotient * numbers["multiplier"] * 2.0**-shift
    return final_codes(
        trial,
        value,
        0.0,
        lambda i: Fraction(int(quotient[i]) * numbers["multiplier"]) / Fraction(2) ** shift,
        f"{_mode(trial)} of quotient * multiplier * 2**-n",
    )


def _without_stages(trial: Trial, table: Table) -> Verdict:
    """Judge an engine that shows no stages: float32 tables by the error of the float32 sum, others by the summed e."""
    top, bottom = _prescribed_exponentials(trial, table)
    exponentials = top / bottom
    axis, scale = trial.axis, float(trial.output.scale)
    total = exponentials.sum(axis=axis, keepdims=True)
    if (total <= 0).any():
        return failure(CHECK, "the provided exponentials of a row add up to nothing")
    share = exponentials / total
    terms = exponentials.shape[axis]
    if table.entries.dtype.is_floating_point:
        extra = share / scale * (terms + 1) * FLOAT32_UNIT
    else:
        extra = softmax_stage_error(trial, share, total)
    return final_codes(
        trial, share / scale, extra, lambda i: Fraction(float(share[i])) / Fraction(scale), "exp / sum / scale"
    )


def softmax_stage_error(trial: Trial, share: Array, total: Array) -> Array:
    """Return e in output codes of the stages after the table: interpolation, reciprocal or quotient, multiplier.

    share: y = exp / sum; total: sum of exponentials in units of the table.
    """
    numbers, scale = trial.parameters.numbers, float(trial.output.scale)
    table = trial.parameters.tables["exp"]
    terms = trial.case.shapes["x"][trial.axis]
    entry = 1.0 if abs(table.step) > 1 else 0.0
    error = (1 + terms * share) * entry / total / scale
    if has(trial.parameters, "scaled_result"):
        if trial.variant == QUOTIENT_FIRST:
            places = _places(trial, int(table.entries.max()))
            error = error + 0.5 * numbers["multiplier"] * 2.0 ** -(numbers["shift"] + places)
        else:
            places = _places(trial, numbers["multiplier"])
            error = error + share * total * 2.0 ** -(numbers["shift"] + places)
        gain = numbers["multiplier"] * 2.0 ** -numbers["shift"]
        error = error + share * abs(gain - 1 / scale)
    return np.asarray(error)
