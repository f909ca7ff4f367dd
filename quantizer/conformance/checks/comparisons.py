"""Comparison operators: judged exactly on codes (`arithmetic`), and for disjoint intervals (`accuracy`)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.bounds.set_valued import UNDECIDED, Comparison, Truth
from quantizer.conformance.checks.enclosures import known_operands
from quantizer.conformance.trials.elements import judge_equal, judge_reals
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]


def compared(trial: Trial) -> Verdict:
    """Judge results 0 and 1 by comparing the values of the codes in integers."""
    return judge_equal("arithmetic", trial, trial.got, on_codes(trial), "the values of the codes, compared exactly")


def on_codes(trial: Trial) -> Array:
    """Return whether the relation holds for the codes' values: centred codes times scales, over one denominator."""
    scales = [Fraction(float(trial.qparams(name).scale)) for name in trial.centred]
    # float scales have powers of two as denominators, so the largest one serves for all
    over = max(scale.denominator for scale in scales)
    whole = [
        centred.numpy().astype(np.int64).astype(object) * int(scale * over)
        for scale, centred in zip(scales, trial.centred.values(), strict=True)
    ]
    difference = np.asarray(np.sign(np.subtract(*whole)), np.int64)
    signs = {"less": (-1,), "less_equal": (-1, 0), "greater": (1,), "greater_equal": (0, 1), "equal": (0,)}
    return np.isin(difference, signs[_relation(trial)]).astype(np.int64)


def decided(trial: Trial) -> Verdict:
    """Judge results 0 and 1 by the operands' intervals; where these intersect, both results are right."""
    a, b = (Interval.around(x, np.broadcast_to(dx, x.shape)) for x, dx in known_operands(trial).values())
    truth: Truth = bounds.compare(_relation(trial), *(_shaped(trial, side) for side in (a, b)))
    allowed = bounds.truth_interval(truth)
    return judge_reals(
        "accuracy",
        trial.got.astype(np.float64),
        allowed.lo,
        allowed.hi,
        trial.y.astype(np.float64),
        vacuous=truth == UNDECIDED,
        made_of=f"{_relation(trial)} on the intervals of both operands",
    )


def _relation(trial: Trial) -> Comparison:
    relation = trial.spec.error_model.relation
    assert relation is not None
    return relation


def _shaped(trial: Trial, side: Interval) -> Interval:
    return Interval(*(np.broadcast_to(end, trial.output_shape) for end in (side.lo, side.hi)))
