"""Codes of a plugin's function for operands in other memory, where that memory may choose the order of float32 sums.

Everywhere else the process of plugins requires the same codes. Here each result is judged like the first: by the
interval that `arithmetic` derives for any order. Where it decides nothing, the codes must be the same in every memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import UnsupportedError
from quantizer.core.verdict import Verdict, failure
from quantizer.runtime.isolation.memory import PLACES, SHARED, is_due
from quantizer.runtime.isolation.placement import placed


def in_other_memory(trial: Trial, usual: Verdict, judge: Callable[[Trial], Verdict]) -> Verdict:
    """Return *usual*, or a failure if the codes in some other memory are wrong. Only a sample of cases runs there."""
    if not is_due(trial.codes):
        return usual
    for place in PLACES:
        if (problem := _problem(trial, place, judge)) is not None:
            return failure(usual.check, f"where operands {place}: {problem}", elements=usual.elements)
    return usual


def _problem(trial: Trial, place: str, judge: Callable[[Trial], Verdict]) -> str | None:
    """Return what is wrong with the codes in *place*; None if nothing is, or the function refuses such operands."""
    try:
        other = elsewhere(trial, place)
    except UnsupportedError:
        return None
    found = judge(other)
    if found.failing:
        worst = found.worst
        at = "" if worst is None else f", {worst.got} at {list(worst.index)}, expected {worst.expected}"
        return f"{found.failed} wrong codes of {found.elements}{at}; {found.reason or 'outside their interval'}"
    # shared slices hold other codes than the first run, so these cannot be compared with its results
    if found.status == "inconclusive" and place != SHARED and not torch.equal(other.outcome.codes, trial.outcome.codes):
        return "other codes, and nothing says which are right"
    return None


def elsewhere(trial: Trial, place: str) -> Trial:
    """Return the trial of the same codes with operands that lie in *place* (`runtime/isolation/memory.py`)."""
    other = Trial(trial.target, trial.case, trial.engine)
    other.provide(trial.parameters)
    other.codes = {name: _codes_in(trial, name, place) for name in trial.codes}
    with placed(place):
        other.outcome = other.run(trial.call, other.codes, trial.parameters)
    return other


def _codes_in(trial: Trial, name: str, place: str) -> Tensor:
    """Return an operand's codes that fit the place: slices of an activation that share memory must be equal."""
    values = trial.codes[name]
    if place != SHARED or name in trial.parameters.constants or not values.numel() or not values.dim():
        return values
    # all slices repeat the first one, so that one piece of memory can serve them all
    return values[:1].expand(values.shape).contiguous()
