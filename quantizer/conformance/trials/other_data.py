"""Other data for a plugin under the same parameters, or the same data under others: it may have cached results.

The quantize rule and the float forward are not given these data: they get the samples and the data of the case.
The rule is asked anew only where a parameter differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.conformance.generation.hashing import sample_number
from quantizer.conformance.generation.one_difference import neighbours
from quantizer.conformance.trials.parts import part_of
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN, OVERRIDE

SHARE = 0.75
"""Values keep this share of their distance from the middle of a tensor: all other values move, and ranges stay."""
NEIGHBOURS = 3
"""The number of neighbours that one case runs beside; other cases of an item have others."""
LARGEST = 1e30
"""A calibrated range is widened only if the magnitude of its ends is at most this and at least the inverse."""


def with_other_data(trial: Trial) -> Iterator[Trial]:
    """Yield a plugin function's case with each of the CHANGES of its activations, then with one other difference each.

    The other differences: a wider output range, an optional operand, an attribute, a zero point, a scale, constants.
    Indices stay. A change without effect (on constant data) is left out. The case itself runs before each: a function
    may keep the last result alone, and another change would have replaced it.
    """
    entry = REGISTRY.find(trial.spec.op, "quantized", trial.target.platform.places)
    # only a plugin's function may have cached results
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
            trial.run(trial.call, trial.codes, trial.parameters)
            yield other
    trial.run(trial.call, trial.codes, trial.parameters)
    yield from _under_a_wider_output(trial)
    yield from _with_one_difference(part_of(trial, 0))


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


def _with_one_difference(trial: Trial) -> Iterator[Trial]:
    """Yield some neighbours of the case at its codes, each prepared by the rule before the case runs once more.

    A function may keep its last result, or what the rule prepared last, under a key that lacks the one difference.
    """
    if trial.case.data.given:
        return
    others = [Trial(trial.target, case, trial.engine) for case in neighbours(trial.target, trial.case)]
    others += _with_other_constants(trial)
    first = sample_number(trial.case) % max(len(others), 1)
    for other in (one for one in [*others[first:], *others[:first]][:NEIGHBOURS] if one.declined is None):
        again = Trial(trial.target, trial.case, trial.engine)
        again.tensors = dict(trial.tensors)
        # the rule is asked for the case, then for the neighbour; the function runs in the same order
        _ = again.parameters
        other.tensors = {**other.tensors, **_at_codes_of(trial, other)}
        yield again
        yield other


def _at_codes_of(trial: Trial, other: Trial) -> dict[str, Tensor]:
    """Return the real values of the activations that have the codes of *trial* under the parameters of *other*."""
    return {
        name: other.real_of(trial.codes[name], params).float()
        for name, params in other.parameters.inputs.items()
        if name in other.tensors and trial.spec.inputs[name].kind == "value"
    }


def _with_other_constants(trial: Trial) -> Iterator[Trial]:
    """Yield the case with one constant of another seed, for each constant."""
    inputs, data = trial.spec.inputs, trial.case.data
    made = Trial(trial.target, trial.case.but(data=replace(data, seed=data.seed ^ 1)), trial.engine)
    for name in trial.case.shapes:
        if inputs[name].role != "activation" and inputs[name].kind == "value":
            other = Trial(trial.target, trial.case, trial.engine)
            other.tensors = {**trial.tensors, name: made.tensors[name]}
            yield other


def _step(trial: Trial, name: str) -> float:
    """Return the smallest step of an operand's codes; 0 if it has none."""
    params = trial.parameters.inputs.get(name)
    return 0.0 if params is None else float(params.scale.min())


def _changed(values: Tensor, step: float, change: Change) -> Tensor:
    made = change(values.flatten(), step).reshape(values.shape)
    # a change that overflows counts as no change
    return made if bool(made.isfinite().all()) else values


def _towards_middle(values: Tensor, _: float) -> Tensor:
    # halves first, because the sum of both ends may overflow
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
"""Ways in which other data differ. A function that caches results under a part of its data is right for some of them
only. Each function gets the values of one tensor as one row, and the step of its codes.
"""
