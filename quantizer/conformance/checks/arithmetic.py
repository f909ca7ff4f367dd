"""arithmetic: output codes are the exact accumulator times the provided multiplier, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from quantizer.conformance.bounds.pairs import of_floats
from quantizer.conformance.bounds.rounding import RESOLUTION
from quantizer.conformance.checks.comparisons import compared
from quantizer.conformance.checks.enclosed import enclosed
from quantizer.conformance.checks.float32_stages import replayed
from quantizer.conformance.checks.log_softmax import logarithms
from quantizer.conformance.checks.means import mean
from quantizer.conformance.checks.multiplier_rules import AREA_BITS, FLOAT32_CODES
from quantizer.conformance.checks.normalization import normalization_arithmetic
from quantizer.conformance.checks.other_memory import in_other_memory
from quantizer.conformance.checks.products import bilinear
from quantizer.conformance.checks.quantize_op import quantized_reals
from quantizer.conformance.checks.quotients import quotient
from quantizer.conformance.checks.reductions import euclidean_arithmetic, product_arithmetic
from quantizer.conformance.checks.requantized import CHECK, FLOAT32_UNIT, Declared, Real, rounded_once
from quantizer.conformance.checks.resize import resize_arithmetic
from quantizer.conformance.checks.room_oracles import judged_by_room
from quantizer.conformance.checks.softmax import softmax_arithmetic
from quantizer.conformance.checks.staged import has_stages, staged, undeclared
from quantizer.conformance.checks.unary import judge_by_reference, monotone_arithmetic
from quantizer.conformance.checks.undisclosed_multiplier import undisclosed_multiplier
from quantizer.conformance.checks.weighted_sums import linear
from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.trials.declared import as_declared, known_stages
from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

FLOAT32_WHOLE = 2.0**24
"""Whole numbers up to here are float32 numbers."""


def arithmetic(trial: Trial) -> Verdict:
    """Judge output codes against the exact real number that the platform's arithmetic prescribes.

    If a plugin's sums may depend on where its operands lie in memory, its codes for operands in other memory are
    judged, too.
    """
    verdict = of_codes(trial)
    return verdict if verdict.failing or not trial.any_order else in_other_memory(trial, verdict, of_codes)


def of_codes(trial: Trial) -> Verdict:
    """Judge the codes of one run.

    The codes are judged under the numbers and stages that the platform declares (`declared.py`). A stage that is shown
    but not declared is a failure. If the owner of the run chose a reading, it judges every case to which it applies.
    """
    declared = known_stages(trial)
    problem = None if declared is None else undeclared(trial.outcome.stages, declared, trial.target.id)
    if problem is not None:
        return problem
    if has_stages(trial):
        return staged(trial)
    if trial.target.platform.enclosing is not None:
        # an index is not rounded, so it has no enclosure
        return _index(trial) if trial.spec.error_model.kind == "index" else enclosed(trial)
    judged = as_declared(trial)
    if (reading := trial.target.reading) is not None:
        verdict = _READINGS[reading](judged)
        if verdict is not None:
            return verdict
    # the most specific judge first: the room's oracle, replayed float32 stages, then the error model
    return judged_by_room(judged) or replayed(judged) or _by_model(judged)


def _by_model(trial: Trial) -> Verdict:
    return _JUDGES.get(trial.spec.error_model.kind, judge_by_reference)(trial)


def _exactly(trial: Trial) -> Verdict | None:
    """Judge a plugin by exact arithmetic if the platform's own functions lose bits. RELU6 clips at exactly 6."""
    platform = trial.target.platform
    # exact sums, and each activation by its own name instead of what the platform computes for it
    sums = platform.accumulator.model_copy(update={"float32": [], "float32_before": []})
    update = {"accumulator": sums, "activations": {name: name for name in platform.activations}}
    exact = platform.model_copy(update=update)
    return (
        None
        if exact == platform
        else _JUDGES.get(trial.spec.error_model.kind, judge_by_reference)(trial.under_platform(exact))
    )


def _in_float32(trial: Trial) -> Verdict | None:
    """Judge a plugin that adds in float32 in any order, if the platform declares float32 sums.

    Each term adds 2**-24 of the summed magnitudes of raw codes if these exceed the integers of float32. The product,
    its shift and the terms absorbed by the constant add as much if they exceed these integers. Smaller numbers are
    exact.
    """
    rescale, family, declared = (
        trial.parameters.rescale,
        trial.spec.quantization.family,
        trial.target.platform.accumulator,
    )
    if (family not in declared.float32 and trial.spec.op not in declared.float32_sums) or rescale is None:
        return None
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    gain = mantissa * np.exp2(-shift.astype(np.float64))
    raw = {name: codes.double().abs() for name, codes in trial.codes.items()}
    first = next(iter(trial.spec.activations))
    raw[first] = raw[first] + abs(int(trial.qparams(first).zero_point))
    summed = trial.reference(raw)
    added = np.where(summed > FLOAT32_WHOLE, trial.terms * summed, 0.0)
    scaled = np.where(np.abs(trial.sums) * mantissa > FLOAT32_WHOLE, 3 * summed, 0.0)
    extra = (added + scaled) * FLOAT32_UNIT * gain
    value = trial.sums * gain
    return rounded_once(trial, Real(value, of_floats(value)), Declared(), extra=extra)


def _own_mean(trial: Trial) -> Verdict | None:
    """Judge a mean whose multiplier is not disclosed: one multiplier per number of terms, in the platform's format."""
    if trial.variant != "area_multiplier":
        return None
    rescale = trial.parameters.rescale
    if rescale is not None and rescale.variant == "multiplier_shift":
        return _by_model(trial)
    known = mean_sums(trial)
    return None if known is None else undisclosed_multiplier(trial, *known, AREA_BITS)


def _movement(trial: Trial) -> Verdict:
    """Judge moved codes: unchanged, or rescaled exactly if the output's parameters differ from the input's."""
    name = trial.spec.activations[0]
    if trial.spec.inputs[name].kind == "real":
        return quantized_reals(trial, name)
    params, output = trial.qparams(name), trial.output
    if float(params.scale) != float(output.scale) or int(params.zero_point) != int(output.zero_point):
        return judge_by_reference(trial)
    real = trial.y_hat / float(output.scale)
    whole, scale = np.rint(real), float(output.scale)
    # the reference scales codes in float64; where that explains the difference, the code itself was moved
    moved = whole * scale == trial.y_hat
    real = np.where(moved, whole, real)
    quantizer = trial.target.platform.quantizer
    # a code that stays whole has no float32 error
    exact = quantizer.operation == "exact" or np.abs(real - np.rint(real)) < RESOLUTION * np.abs(real)
    # quotients by a power of two are exact, so their ties are real ties
    if math.frexp(float(output.scale))[0] == 0.5:
        exact = exact | (np.abs(real - np.trunc(real)) == 0.5)
    return rounded_once(
        trial,
        Real(
            real,
            lambda i: Fraction(float(real[i] if moved[i] else trial.y_hat[i])) / Fraction(1 if moved[i] else scale),
        ),
        Declared(quantizer.rounding, quantizer.zero_point == "before"),
        extra=np.where(exact, 0.0, FLOAT32_CODES * np.abs(real)),
        what="the moved value in steps of the output",
    )


def _index(trial: Trial) -> Verdict:
    """Judge indices: they must equal the indices that the reference operator gives for the codes."""
    # on the codes themselves: scales are positive, so the largest code has the largest value
    wanted = trial.reference({name: values.double() for name, values in trial.codes.items()}).astype(np.int64)
    return judge_equal(CHECK, trial, trial.got, wanted, "the reference's index on the codes, ties by the declared rule")


_JUDGES: Mapping[str, Callable[[Trial], Verdict]] = {
    "bilinear": bilinear,
    "linear": linear,
    "selection": linear,
    "mean": mean,
    "monotone": monotone_arithmetic,
    "piecewise_monotone": monotone_arithmetic,
    "set_valued": monotone_arithmetic,
    "poles": lambda trial: monotone_arithmetic(trial) if len(trial.codes) == 1 else quotient(trial),
    "movement": _movement,
    "index": _index,
    "comparison": compared,
    "product": product_arithmetic,
    "euclidean": euclidean_arithmetic,
    "softmax": lambda trial: logarithms(trial) if trial.spec.error_model.logarithm else softmax_arithmetic(trial),
    "resize": resize_arithmetic,
    "normalization": normalization_arithmetic,
}

_READINGS: Mapping[str, Callable[[Trial], Verdict | None]] = {
    "exact_sums": _exactly,
    "float32_sums": _in_float32,
    "own_mean": _own_mean,
    "real_attributes": lambda _: None,
    "undisclosed_stages": lambda _: None,
    "rounded_once": judge_by_reference,
}
"""Reading -> its judge, which returns None for a case that the platform's own arithmetic judges instead."""
