"""Enclosures of a function of one input that has poles."""

from __future__ import annotations

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.trials.provided import as_torch
from quantizer.conformance.trials.trial import Trial


def enclosure(trial: Trial, name: str, box: Interval) -> Interval:
    """Return the enclosure of the function over *box*: between the spec's poles if periodic, else an inverse."""
    model = trial.spec.error_model
    if model.period is None:
        return bounds.reciprocal(box)
    poles = [bounds.critical_points_between(box.lo, box.hi, point, model.period) for point in model.critical_points]
    return bounds.between_poles(lambda v: trial.reference({name: as_torch(v)}), box, poles)
