"""Computes the allowed interval of each output element, for a function that shows only its output codes."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.staged import WIDEST, has_stages
from quantizer.conformance.trials.elements import ALLOWED
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.vectors import MOST_CODES
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Staged


@dataclass(frozen=True)
class Intervals:
    """The allowed intervals, or the reason why there are none."""

    low: Array
    high: Array
    conclusive: int
    """An element is inconclusive if its interval has more codes than this."""

    @property
    def vacuous(self) -> int:
        """The number of inconclusive elements."""
        return int(np.count_nonzero(self.high - self.low >= self.conclusive))


def intervals(trial: Trial) -> Intervals | str:
    """Return the interval that check `arithmetic` allows for each output element, or the reason why there is none.

    The package's own codes are judged with hidden stages, like those of a function that returns only codes. A bundle
    states the allowed codes before any kernel runs, so an interval that depends on the judged codes does not count, for
    example if a hidden number is inferred from them. A case whose own codes do not pass has no interval either.
    """
    codes = trial.outcome.codes
    verdict, found = _judged(trial, codes)
    if verdict.status != "pass":
        return verdict.reason or f"arithmetic is {verdict.status} on the platform's own codes"
    if found is None:
        return "check arithmetic derives no interval for the case"
    # the same interval for right and for wrong codes: it does not depend on them
    for others in _wrong(trial, codes):
        _, other = _judged(trial, others)
        if other is None or not all(map(np.array_equal, found, other)):
            return "the interval depends on the codes that are judged"
    shape = trial.output_shape
    low, high = (np.broadcast_to(end, shape) for end in found)
    steps = trial.output.qmax - trial.output.qmin
    kept = Intervals(low, high, WIDEST if has_stages(trial) else min(max(steps, 1), MOST_CODES))
    return "every code is allowed for every element" if low.size and kept.vacuous == low.size else kept


def _judged(trial: Trial, codes: Tensor) -> tuple[Verdict, tuple[Array, Array] | None]:
    """Return the verdict of `arithmetic` on *codes* alone, and the interval that it used."""
    alone = copy.copy(trial)
    alone.outcome, alone.shared = Staged(codes, {}), {}
    verdict = arithmetic(alone)
    low, high = (alone.shared.get(end) for end in ALLOWED)
    return verdict, None if low is None or high is None else (low, high)


def _wrong(trial: Trial, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes that are off by one everywhere, and codes that are all the smallest code."""
    least, most = trial.output.qmin, trial.output.qmax
    return torch.where(codes < most, codes + 1, codes - 1), torch.full_like(codes, least)
