"""Arithmetic of a quotient of two operands: exact, or by a table of inverses."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.checks.unary import read_at
from quantizer.conformance.trials.elements import Allowed, exact_value, judge_codes, judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
CHECK = "arithmetic"


def quotient(trial: Trial) -> Verdict:
    """Judge the quotient of the dequantized operands, rounded once, or the product with a provided table of inverses.

    The table is read at whole codes, so its entry is known even if the forward does not show it.
    """
    table, rescale = trial.parameters.tables.get("inverse"), trial.parameters.rescale
    top, bottom = np.broadcast_arrays(*(part.numpy().astype(np.int64) for part in trial.centred.values()))
    if table is None or rescale is None:
        return _exact(trial, top, bottom)
    inverse = read_at(table, np.abs(bottom))
    if "inverse" in trial.outcome.stages:
        got = np.broadcast_to(trial.outcome.stages["inverse"].numpy(), inverse.shape)
        stage = judge_equal(CHECK, trial, got, inverse, "the entry of |b|", tensor="inverse")
        if stage.failing:
            return stage
    # the table is read at |b|, so the numerator takes the sign of b
    whole = np.where(bottom < 0, -top, top) * inverse
    ratio = Fraction(float(rescale.mantissa)) / Fraction(2) ** int(rescale.shift)
    return _rounded(
        trial, whole * float(ratio), lambda i: int(whole[i]) * ratio, "the provided multiple of a * inverse"
    )


def _exact(trial: Trial, top: Array, bottom: Array) -> Verdict:
    """Judge exact quotients without a table: infinity saturates, 0 / 0 is code 0."""
    a, b = (Fraction(float(params.scale)) for params in trial.parameters.inputs.values())
    ratio = a / b / Fraction(float(trial.output.scale))
    with np.errstate(all="ignore"):
        # a / 0 is infinite with the sign of a, and 0 / 0 is NaN
        value = np.where(bottom == 0, top * np.inf, top / bottom * float(ratio))
    return _rounded(
        trial, value, lambda i: int(top[i]) * ratio / int(bottom[i]), "the quotient of the values of the codes"
    )


def _rounded(trial: Trial, value: Array, exact: Any, what: str) -> Verdict:
    output, mode = trial.output, trial.target.platform.rounding
    zero, finite = int(output.zero_point), np.isfinite(value)
    low, high = code_interval(
        np.where(finite, value, 0.0),
        zero_point=zero,
        qmin=output.qmin,
        qmax=output.qmax,
        rounding=mode,
        exact=lambda i: exact(i) if finite[i] else Fraction(0),
    )
    beyond = np.where(np.isnan(value), 0.0, np.nan_to_num(value)).clip(output.qmin, output.qmax).astype(np.int64)
    low, high = (np.where(finite, end, beyond) for end in (low, high))
    allowed = Allowed(
        low,
        high,
        value=np.where(finite, value, beyond - zero),
        zero=zero,
        made_of=f"{mode} of {what}",
        detail=exact_value(value, zero),
    )
    return judge_codes(CHECK, trial, allowed)
