"""Gives a plugin other data under the same parameters, or the same data under others, because it may cache results.

A quantize rule is given samples, and a float forward runs on the data of the case. Neither is given these data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN, OVERRIDE

SHARE = 0.75
"""Share of the distance from the middle of a tensor that values keep. So all other values move, and ranges are kept."""
LARGEST = 1e30
"""A calibrated range is widened only if its ends are below this number, and above its inverse."""


def with_other_data(trial: Trial) -> Iterator[Trial]:
    """Yield the case with each of the CHANGES of its activations, then under a wider output, for a plugin's function.

    Indices stay. A change that changes nothing is left out, as of a constant.
    """
    entry = REGISTRY.find(trial.spec.op, "quantized", trial.target.platform.places)
    if entry is None or entry.origin in (BUILT_IN, OVERRIDE):
        return
    inputs = trial.spec.inputs
    known = {
        name: values
        for name, values in trial.tensors.items()
        if inputs[name].role == "activation" and inputs[name].kind != "index" and values.numel()
    }
    for change in CHANGES:
        moved = {name: _changed(values, _step(trial, name), change) for name, values in known.items()}
        if any(not values.equal(known[name]) for name, values in moved.items()):
            other = Trial(trial.target, trial.case, trial.engine)
            other.provide(trial.parameters)
            other.tensors = {**trial.tensors, **moved}
            yield other
    yield from _under_a_wider_output(trial)


def _under_a_wider_output(trial: Trial) -> Iterator[Trial]:
    """Yield the same data with wider calibrated outputs; nothing if none is calibrated, or if parameters are given."""
    case = trial.case
    ends = {name: case.ranges[name] for name in trial.spec.outputs if name in case.ranges}
    wider = {name: (low / SHARE, high / SHARE) for name, (low, high) in ends.items()}
    if case.data.given or not wider or any(not 1 / LARGEST < max(map(abs, pair)) < LARGEST for pair in wider.values()):
        return
    other = Trial(trial.target, case.but(ranges={**case.ranges, **wider}), trial.engine)
    other.tensors = dict(trial.tensors)
    yield other


def _step(trial: Trial, name: str) -> float:
    """Return the smallest step of an operand's codes; 0 if it has none."""
    params = trial.parameters.inputs.get(name)
    return 0.0 if params is None else float(params.scale.min())


def _changed(values: Tensor, step: float, change: Change) -> Tensor:
    made = change(values.flatten(), step).reshape(values.shape)
    return made if bool(made.isfinite().all()) else values


def _towards_middle(values: Tensor, _: float) -> Tensor:
    middle = values.min() / 2 + values.max() / 2
    return middle + SHARE * (values - middle)


def _after_the_first_half(values: Tensor, step: float) -> Tensor:
    half = (len(values) + 1) // 2
    return torch.cat([values[:half], _towards_middle(values, step)[half:]])


def _before_the_last(values: Tensor, step: float) -> Tensor:
    return torch.cat([_towards_middle(values, step)[:-1], values[-1:]])


def _in_the_last(values: Tensor, step: float) -> Tensor:
    return torch.cat([values[:-1], _towards_middle(values, step)[-1:]])


def _in_order(values: Tensor, _: float) -> Tensor:
    return values.flip(0)


def _by_one_step(values: Tensor, step: float) -> Tensor:
    middle = values.min() / 2 + values.max() / 2
    return values + step * (middle - values).sign()


Change = Callable[[Tensor, float], Tensor]
CHANGES: Sequence[Change] = (
    _towards_middle,
    _after_the_first_half,
    _before_the_last,
    _in_the_last,
    _in_order,
    _by_one_step,
)
"""Ways in which other data differ. A function that caches results by a part of its data fails in some of them.

Each is given the values of one tensor in one row, and the step of its codes.
"""
