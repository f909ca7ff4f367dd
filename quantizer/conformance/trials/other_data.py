"""Other data for a plugin under the same parameters: its functions may have seen the data of the case before.

A quantize rule is given samples, and a float forward runs on the data of the case. Neither is given these data.
"""

from __future__ import annotations

from torch import Tensor

from quantizer.conformance.trials.trial import Trial
from quantizer.ops import BUILT_IN, OVERRIDE, REGISTRY

SHARE = 0.75
"""Share of the distance from the middle of a tensor that values keep. So all other values move, and ranges are kept."""


def with_other_data(trial: Trial) -> Trial | None:
    """Return the case with other activations; None if no plugin computes it, or if every activation is constant.

    Each value x becomes m + SHARE * (x - m), m the middle of its tensor. Indices stay.
    """
    entry = REGISTRY.find(trial.spec.op, "quantized", trial.target.platform.places)
    if entry is None or entry.origin in (BUILT_IN, OVERRIDE):
        return None
    inputs = trial.spec.inputs
    moved = {
        name: _towards_middle(values)
        for name, values in trial.tensors.items()
        if inputs[name].role == "activation" and inputs[name].kind != "index" and values.numel()
    }
    if all(values.equal(trial.tensors[name]) for name, values in moved.items()):
        return None
    other = Trial(trial.target, trial.case, trial.engine)
    other.provide(trial.parameters)
    other.tensors = {**trial.tensors, **moved}
    return other


def _towards_middle(values: Tensor) -> Tensor:
    middle = values.min() / 2 + values.max() / 2
    moved = middle + SHARE * (values - middle)
    return moved if bool(moved.isfinite().all()) else values
