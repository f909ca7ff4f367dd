"""Other data for a plugin under the same parameters, or the same data under others: it may have cached results.

The quantize rule and the float forward are not given these data: they get the samples and the data of the case.
The rule is asked anew only where a parameter differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from quantizer.conformance.generation.case_classes.one_difference import neighbours
from quantizer.conformance.generation.hashing import sample_number
from quantizer.conformance.trials.parts import part_of
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN, OVERRIDE

T = TypeVar("T")
SHARE = 0.75
"""Values keep this share of their distance from the middle of a tensor: all other values move, and ranges stay."""
NEIGHBOURS = 3
"""The number of neighbours that one case runs beside; other cases of an item have others."""
LARGEST = 1e30
"""A calibrated range is widened only if the magnitude of its ends is at most this and at least the inverse."""


def with_other_data(trial: Trial) -> Iterator[Trial]:
    """Yield a plugin function's case with each of the CHANGES, each of one activation, then with other differences.

    The other differences: a wider output range, what `neighbours` changes, constants, two operands exchanged.
    Activations take the changes in turns, which differ by case. Indices stay. A change without effect (on constant
    data) is left out. The case itself runs before each: a function may keep the last result alone, and another change
    would have replaced it.
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
    for place, change in enumerate(CHANGES, sample_number(trial.case)):
        # one operand at a time: the key of a result may lack any of them
        moved = ((name, _changed(known[name], _step(trial, name), change)) for name in _from(place, [*known]))
        for name, values in itertools.islice(((n, v) for n, v in moved if not v.equal(known[n])), 1):
            other = Trial(trial.target, trial.case, trial.engine)
            other.provide(trial.parameters)
            other.tensors = {**trial.tensors, name: values}
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
    cases = [*neighbours(trial.target, trial.case)]
    others = [(Trial(trial.target, case, trial.engine), trial.codes) for case in cases]
    others += [(other, trial.codes) for other in _with_other_constants(trial)]
    others += [(Trial(trial.target, trial.case, trial.engine), codes) for codes in _swapped(trial)]
    several = _from(sample_number(trial.case), others)[:NEIGHBOURS]
    for other, codes in (one for one in several if one[0].declined is None):
        again = Trial(trial.target, trial.case, trial.engine)
        again.tensors = dict(trial.tensors)
        # the rule is asked for the case, then for the neighbour; the function runs in the same order
        _ = again.parameters
        other.tensors = {**other.tensors, **_at_codes(codes, other)}
        yield again
        yield other


def _from(place: int, several: Sequence[T]) -> list[T]:
    """Return *several* in turns, beginning at a place that counts around."""
    first = place % max(len(several), 1)
    return [*several[first:], *several[:first]]


def _at_codes(codes: Mapping[str, Tensor], other: Trial) -> dict[str, Tensor]:
    """Return the real values of the activations that have these *codes* under the parameters of *other*."""
    return {
        name: other.real_of(codes[name], params).float().reshape(other.case.shapes[name])
        for name, params in other.parameters.inputs.items()
        if name in other.tensors and other.spec.inputs[name].kind == "value"
    }


def _swapped(trial: Trial) -> Iterator[dict[str, Tensor]]:
    """Yield the codes with those of two activations exchanged, for the first two of one shape."""
    codes = {name: trial.codes[name] for name in trial.parameters.inputs if name in trial.codes}
    pairs = itertools.combinations([name for name in codes if trial.spec.inputs[name].kind == "value"], 2)
    alike = ((a, b) for a, b in pairs if codes[a].shape == codes[b].shape and not codes[a].equal(codes[b]))
    for a, b in itertools.islice(alike, 1):
        yield {**codes, a: codes[b], b: codes[a]}


def _with_other_constants(trial: Trial) -> Iterator[Trial]:
    """Yield the case with one constant of another seed, for each constant."""
    inputs, data = trial.spec.inputs, trial.case.data
    made = Trial(trial.target, trial.case.but(data=replace(data, seed=data.seed ^ 1)), trial.engine)
    for name in trial.case.shapes:
        if inputs[name].role != "activation" and inputs[name].kind == "value":
            other = Trial(trial.target, trial.case, trial.engine)
            other.tensors = {**trial.tensors, name: made.tensors[name]}
            yield other


def difference(trial: Trial, other: Trial) -> str:
    """Return in words what differs between two cases, without numbers; empty if nothing does."""
    one, two = trial.case, other.case
    found = [f"operand {name}" for name in one.shapes if name not in two.shapes]
    found += [f"the shape of {name}" for name, shape in two.shapes.items() if one.shapes.get(name) != shape]
    found += [f"attribute {name}" for name, value in two.attrs.items() if one.attrs[name] != value]
    found += [f"the range of {name}" for name, span in two.ranges.items() if one.ranges.get(name) != span]
    found += ["the fused activation"] * (one.activation != two.activation)
    if not found:
        # codes: the real values of an operand may differ below one step
        found = [f"the data of {name}" for name, codes in other.codes.items() if not codes.equal(trial.codes[name])]
    return " and ".join(found)


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
