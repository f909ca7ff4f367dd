"""accuracy: outputs lie in the enclosure of the reference over its inputs' intervals (docs/reference/checks.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.checks.comparisons import decided
from quantizer.conformance.checks.enclosures import ENCLOSURES, known_operands
from quantizer.conformance.checks.reductions import sums_of_squares
from quantizer.conformance.checks.requantized import DECLARED, FLOAT32_UNIT, last_roundings
from quantizer.conformance.checks.stage_errors import stage_error
from quantizer.conformance.checks.staged import computes_reference, has_stages, last_mode, unrounded
from quantizer.conformance.expected import parameters as expected_parameters
from quantizer.conformance.grids import decoded, ends, listed, positions, values_at
from quantizer.conformance.trials.declared import as_declared
from quantizer.conformance.trials.elements import judge_reals
from quantizer.conformance.trials.trial import Compared, Trial
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.sum_bits import accumulator_bits
from quantizer.core.verdict import UNJUDGED, Verdict, Worst, failure, inconclusive

Array = NDArray[Any]
CHECK = "accuracy"
LIMITS = {"none": (-math.inf, math.inf), "relu": (0.0, math.inf), "relu6": (0.0, 6.0)}
"""Fused activation -> the smallest and the largest real value of a result."""
PLACE = 2.0**-30
"""Error of float64 in the position of a number between codes of a narrow float."""


def accuracy(trial: Trial) -> Verdict:
    """Judge dequantized outputs by the enclosure of the reference for all inputs within half a step."""
    if (share := trial.compared_of_whole) is not None:
        return _judged(share)
    found = _compared(as_declared(trial))
    if isinstance(found, Verdict):
        return found
    trial.compared = found
    return _judged(found)


def _judged(pairs: Compared) -> Verdict:
    made_of = f"{pairs.rest} + stages {float(np.max(pairs.stages, initial=0.0)):.4g}"
    return judge_reals(CHECK, pairs.got, pairs.low, pairs.high, pairs.centre, vacuous=pairs.vacuous, made_of=made_of)


def _compared(trial: Trial) -> Compared | Verdict:
    """Return the outputs and their enclosures, or the verdict of an operator or a case that has none."""
    kind = trial.spec.error_model.kind
    if kind == "index":
        return _regret(trial)
    if kind == "comparison":
        return decided(trial)
    enclose = ENCLOSURES.get(kind)
    if has_stages(trial):
        if (problem := computes_reference(trial)) is not None:
            return failure(CHECK, problem)
        enclose = _through_stages
    if enclose is None:
        return inconclusive(CHECK, UNJUDGED)
    # a sum that wraps or saturates says nothing about the real result; `arithmetic` judges it
    if _leaves_accumulator(trial):
        return Verdict(CHECK, "overflow", elements=trial.got.size, reason="a sum may leave the accumulator")
    output = trial.output
    scale, zero = float(output.scale), int(output.zero_point)
    low, high = (scale * end for end in ends(output))
    inner = enclose(trial).saturated(*LIMITS[trial.case.activation])
    lost = np.zeros(trial.output_shape) if has_stages(trial) else stage_error(trial)
    stages = scale * (lost + _limit_error(trial))
    allowed = _with_limit(trial, inner, _rounded(trial, inner.widened(stages))).saturated(low, high)
    vacuous = bounds.vacuous(allowed, low, high)
    got = scale * decoded(trial.got, output, zero)
    # a result beyond the codes saturates, so distances count from the end code
    centre = np.clip(trial.y, low, high)
    rest, stages = f"enclosure of the inputs + {_lost(trial)}", np.broadcast_to(stages, centre.shape)
    return Compared(got, _outward(allowed.lo, -1), _outward(allowed.hi, 1), centre, vacuous, stages, rest)


def _through_stages(trial: Trial) -> Interval:
    """Return the enclosure of declared stages for operands known to half a step; the last rounding is not included."""
    boxes = {name: Interval.around(x, np.broadcast_to(dx, x.shape)) for name, (x, dx) in known_operands(trial).items()}
    return unrounded(trial, boxes, rounded=True)


def _roundings(trial: Trial) -> set[RoundingMode]:
    return {last_mode(trial)} if has_stages(trial) else last_roundings(trial)


def _rounded(trial: Trial, exact: Interval) -> Interval:
    """Widen *exact* by the largest change of the last rounding: half a step, or a whole step in its direction.

    On the grid of a narrow float a step is one code. Rounding toward zero moves a number up or down by its sign. If a
    platform adds the zero point first, the sign of the code decides. So either direction is possible.
    """
    scale, modes = float(trial.output.scale), _roundings(trial)
    falls, rises = ({"down", "toward_zero", "stochastic"}, {"up", "toward_zero", "stochastic"})
    if listed(trial.output) is not None:
        low, high = (positions(end / scale, trial.output) for end in (exact.lo, exact.hi))
        places = (
            low - PLACE - max(_steps(mode, falls) for mode in modes),
            high + PLACE + max(_steps(mode, rises) for mode in modes),
        )
        return Interval(*(values_at(place, trial.output) * scale for place in places))
    below, above = (scale * max(_steps(mode, moving) for mode in modes) for moving in (falls, rises))
    return Interval(exact.lo - below, exact.hi + above)


def _steps(mode: RoundingMode, moving: set[str]) -> float:
    """Return by which part of a step *mode* moves a number at most; *moving*: modes that move it by up to a step."""
    if mode.startswith("half"):
        return 0.5
    return 1.0 if mode in moving else 0.0


def _lost(trial: Trial) -> str:
    scale = float(trial.output.scale)
    if all(mode.startswith("half") for mode in _roundings(trial)):
        return f"half a step {scale / 2:.4g}"
    return f"a step {scale:.4g} in the direction of the rounding"


def _with_limit(trial: Trial, inner: Interval, allowed: Interval) -> Interval:
    """Return *allowed* changed for an activation's limit, where the platform declares how the limit becomes a code.

    The code of the limit is the largest one, and every number at or above the limit may become this code.
    """
    rule, most = trial.target.platform.limit(trial.variant), trial.limits[1]
    if trial.case.activation == "none" or rule is None or not math.isfinite(most):
        return allowed
    scale, zero = float(trial.output.scale), int(trial.output.zero_point)
    end = scale * (expected_parameters.limit_code(most, scale, zero, rule) - zero)
    return Interval(np.minimum(allowed.lo, end), np.where(inner.hi >= most, np.maximum(allowed.hi, end), allowed.hi))


def _limit_error(trial: Trial) -> float:
    """Return the float32 error, in codes, of quantizing the limit of a fused activation: a tie may go either way."""
    rule, most = trial.target.platform.limit(trial.variant), trial.limits[1]
    if trial.case.activation == "none" or rule is None or rule.operation == "exact" or not math.isfinite(most):
        return 0.0
    return FLOAT32_UNIT * (most / float(trial.output.scale) + abs(int(trial.output.zero_point)))


def _leaves_accumulator(trial: Trial) -> bool:
    """Return whether the sum of |terms| may leave a wrapping or saturating accumulator: `arithmetic` judges the case.

    If a sum is shifted to the left in 32 bits that wrap before it is multiplied, the shifted sum must fit.
    """
    rule, rescale = trial.target.platform.accumulator, trial.parameters.rescale
    kind = trial.spec.error_model.kind
    if rule.overflow not in ("wrap", "saturate") or kind not in ("bilinear", "euclidean"):
        return False
    bits = accumulator_bits(trial.target.platform, trial.target.scheme)
    limit = 2.0 ** (bits - 1)
    wraps = rescale is not None and rescale.variant in DECLARED and DECLARED[rescale.variant].wraps
    if kind == "bilinear" and not wraps:
        return trial.reaches(limit)
    magnitude = sums_of_squares(trial) if kind == "euclidean" else trial.sum_magnitudes
    if rescale is not None and wraps:
        magnitude = magnitude * np.exp2(np.maximum(31.0 - trial.per_channel(rescale.shift), 0.0))
    return bool(magnitude.max(initial=0.0) >= limit)


def _outward(values: Array, direction: int) -> Array:
    """Return *values* moved outward by the rounding of one float64 product, the error of `scale * code`."""
    return np.asarray(values + direction * 4 * np.spacing(np.abs(values)))


def _regret(trial: Trial) -> Verdict:
    """Judge an index operator: the chosen element may be the largest (smallest) one for inputs within half a step."""
    x, dx = known_operands(trial)[trial.spec.activations[0]]
    # the place of the smallest element is that of the largest one of -x
    x = -x if trial.spec.error_model.smallest else x
    axis = trial.axis
    chosen = trial.got
    # without keepdims the axis returns, so that indices can be taken along it
    if chosen.ndim < x.ndim:
        chosen = np.expand_dims(chosen, axis)
    if chosen.shape != tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)):
        worst = Worst("y", (), "the shape of the spec", f"shape {list(trial.got.shape)}", "")
        return Verdict(CHECK, "fail", ratio=float("inf"), elements=1, failed=1, worst=worst)
    if chosen.size and not ((chosen >= 0) & (chosen < x.shape[axis])).all():
        worst = Worst("y", (), f"an index in [0, {x.shape[axis]})", f"{int(chosen.min())}..{int(chosen.max())}", "")
        return Verdict(CHECK, "fail", ratio=float("inf"), elements=chosen.size, failed=1, worst=worst)
    allowed, actual = bounds.regret(x, np.broadcast_to(dx, x.shape), chosen, axis)
    best = x.max(axis=axis, keepdims=True)
    # only a value below the allowed one is wrong: nothing is larger than the best element
    return judge_reals(
        CHECK,
        actual,
        allowed,
        np.maximum(best, actual),
        np.broadcast_to(best, actual.shape),
        made_of="best - 2 max|dx|",
    )
