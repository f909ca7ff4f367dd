"""Infers a multiplier that the function does not disclose, from the sums and the codes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.checks.multiplier_rules import FLOAT32_CODES
from quantizer.conformance.trials.elements import Allowed, judge_codes
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
CHECK = "arithmetic"


def undisclosed_multiplier(trial: Trial, sums: Array, terms: Array, bits: int) -> Verdict:
    """Judge codes `sum * r`, rounded once; r, of at least *bits* bits, is the same for all sums of equally many terms.

    Every code q that is not at an end of the codes confines r to an interval, `(q -+ 1/2) / sum`. So does the ratio of
    scales over the number of terms, known to half a unit of *bits*. The intersection of all intervals is what r may be,
    and decides the allowed codes. If it is empty, or if *bits* bits hold the exact ratio, the exact ratio decides. This
    is sound: every r whose products round to the nearest code lies in the intersection.
    """
    output, params, mode = trial.output, next(iter(trial.parameters.inputs.values())), trial.target.platform.rounding
    # a directed rounding moves a number by up to a whole code
    zero, half = int(output.zero_point), 0.5 if mode.startswith("half") else 1.0
    ratio = Fraction(float(params.scale)) / Fraction(float(output.scale))
    low, high = np.zeros(sums.shape), np.zeros(sums.shape)
    for number in np.unique(terms):
        here, exact = terms == number, ratio / int(number)
        away = _half_unit(exact, bits)
        least, most = _factor(
            sums[here].astype(np.float64),
            (trial.got[here] - zero).astype(np.float64),
            half,
            (output.qmin - zero, output.qmax - zero),
            float(exact),
            # where the bits hold the ratio exactly, `away` is 0 and nothing else is possible
            away + (away > 0) * float(exact) * FLOAT32_CODES,
        )
        # a negative sum exchanges the ends
        ends = sums[here] * least, sums[here] * most
        low[here], high[here] = np.minimum(*ends), np.maximum(*ends)
    value = (low + high) / 2
    first, last = code_interval(
        value,
        e_over_s=(high - low) / 2,
        zero_point=zero,
        qmin=output.qmin,
        qmax=output.qmax,
        rounding=mode,
        exact=lambda i: int(sums[i]) * ratio / int(terms[i]),
    )
    allowed = Allowed(
        first,
        last,
        value=value,
        allowance=half + (high - low) / 2,
        zero=zero,
        made_of=f"{trial.target.platform.rounding} of the sum times one number near 1 / terms",
        detail=lambda i: {"accumulator": str(int(sums[i])), "divided by": str(int(terms[i]))},
    )
    return judge_codes(CHECK, trial, allowed)


def _half_unit(ratio: Fraction, bits: int) -> float:
    """Return half a unit of a multiplier of *bits* bits for the ratio; 0 if it represents the ratio exactly."""
    unit = Fraction(2) ** (math.frexp(float(ratio))[1] - bits)
    return 0.0 if (ratio / unit).denominator == 1 else float(unit / 2)


def _factor(
    sums: Array, codes: Array, half: float, ends: tuple[int, int], ratio: float, away: float
) -> tuple[float, float]:
    """Return the interval of possible factors; the exact ratio at both ends if no factor is possible."""
    # a sum of 0 says nothing about the factor
    told = sums != 0
    sign, size = np.sign(sums[told]), np.abs(sums[told])
    towards = sign * codes[told]
    # a saturated code bounds the factor on one side only
    at_top = np.where(sign > 0, codes[told] >= ends[1], codes[told] <= ends[0])
    at_bottom = np.where(sign > 0, codes[told] <= ends[0], codes[told] >= ends[1])
    low = np.where(at_bottom, -np.inf, (towards - half) / size)
    high = np.where(at_top, np.inf, (towards + half) / size)
    least, most = max(ratio - away, float(low.max(initial=-np.inf))), min(ratio + away, float(high.min(initial=np.inf)))
    return (least, most) if least <= most else (ratio, ratio)
