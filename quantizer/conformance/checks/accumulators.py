"""Values of a declared accumulator for an exact sum: the sum itself, wrapped, or saturated in some order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.trials.trial import Trial
from quantizer.core.sum_bits import accumulator_bits, is_narrow
from quantizer.core.verdict import Verdict, Worst, failure

Array = NDArray[Any]
CHECK = "arithmetic"


def leaves_accumulator(trial: Trial) -> bool:
    """Return whether a sum of the case leaves the accumulator, where sums of the operator can."""
    target = trial.target
    if not is_narrow(target.platform, target.spec, target.scheme):
        return False
    limit = 2.0 ** (accumulator_bits(target.platform, target.scheme) - 1)
    return bool((trial.sums >= limit).any() or (trial.sums < -limit).any())


def order_decides(trial: Trial) -> Array:
    """Return which sums the declared accumulator may hold in several ways, as it saturates before they are complete."""
    target = trial.target
    if target.platform.accumulator.overflow != "saturate" or not is_narrow(target.platform, target.spec, target.scheme):
        return np.zeros(trial.got.shape, dtype=bool)
    least, most, _ = own_sums(trial, trial.sums)
    return np.asarray(least != most)


def own_sums(trial: Trial, acc: Array) -> tuple[Array, Array, Verdict | None]:
    """Return `held_sums` of the operator's own terms, whose magnitudes are added up only where an accumulator ends."""
    limit = 2.0 ** (accumulator_bits(trial.target.platform, trial.target.scheme) - 1)
    return held_sums(trial, acc, trial.sum_magnitudes) if trial.reaches(limit) else (acc, acc, None)


def held_sums(trial: Trial, acc: Array, magnitude: Array) -> tuple[Array, Array, Verdict | None]:
    """Return the smallest and the largest sum that the declared accumulator may hold at the end, or a verdict.

    *magnitude*: the sum of |terms|. An accumulator that saturates depends on the order of additions: least where all
    positive terms come first, most where they come last. A sum that saturates only once, at its end, lies between the
    two.
    """
    rule = trial.target.platform.accumulator
    bits = accumulator_bits(trial.target.platform, trial.target.scheme)
    limit = 2.0 ** (bits - 1)
    if rule.overflow == "unbounded" or not acc.size or float(magnitude.max()) < limit:
        return acc, acc, None
    outside = (acc >= limit) | (acc < -limit)
    if rule.overflow == "wrap":
        wrapped = (acc + limit) % (2 * limit) - limit
        return wrapped, wrapped, None
    if rule.overflow == "saturate":
        # the sums of all positive and of all negative terms
        above, below = (magnitude + acc) / 2, (acc - magnitude) / 2
        least = np.maximum(np.minimum(above, limit - 1) + below, -limit)
        most = np.minimum(np.maximum(below, -limit) + above, limit - 1)
        return least, most, None
    if outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        worst = Worst("accumulator", index, f"at most {int(limit) - 1}", str(int(acc[index])), f"{bits} bits")
        return acc, acc, failure(CHECK, "the accumulator leaves the range that the platform declares", worst)
    return acc, acc, None
