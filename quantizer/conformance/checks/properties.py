"""Check `properties`: related runs of one case, such as with reversed channels, whose results must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.checks.invariance import owed, own_per_channel
from quantizer.conformance.checks.requantized import DECLARED
from quantizer.conformance.trials.elements import Allowed, judge_codes
from quantizer.conformance.trials.provided import copies
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import channel_axis, named_axes
from quantizer.core.spec import Property
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.numerics.rules import same_numbers
from quantizer.runtime.engines.protocol import Asked

Array = NDArray[Any]
OTHER_NUMBERS = "the rule provides other scales for swapped operands, or the case states its values: nothing to compare"


def properties(trial: Trial) -> Verdict | None:
    """Judge the metamorphic relations that the spec declares, bit for bit on codes; None if none applies.

    Elements of a swap are vacuous if nothing says which numbers the swapped operands have.
    """
    runs = [*related_runs(trial)]
    results = trial.results(Asked(trial.call, copies(run.codes), run.parameters) for run in runs)
    found: list[Verdict] = []
    for related, codes in zip(runs, results, strict=True):
        allowed = Allowed(related.low, related.high, made_of=related.made_of)
        verdict = judge_codes("properties", trial, allowed, got=codes.numpy())
        if verdict.failing:
            return verdict
        found.append(verdict)
    unjudged = trial.got.size if _is_unjudged(trial) else 0
    if not found:
        return inconclusive("properties", OTHER_NUMBERS) if unjudged else None
    elements = sum(verdict.elements for verdict in found) + unjudged
    worst = max(found, key=lambda verdict: verdict.ratio)
    return replace(worst, elements=elements, vacuous=worst.vacuous + unjudged)


def _is_unjudged(trial: Trial) -> bool:
    """Return whether operands commute, and nothing says which numbers belong to the swapped ones."""
    swaps = (item for item in trial.spec.properties if item.relation == "commutes")
    return any(_swap_of(trial, item) is not None and _swapped_parameters(trial, item) is None for item in swaps)


@dataclass(frozen=True)
class Related:
    """A second run on changed operands. Its codes can be computed from the codes of the first run."""

    codes: Mapping[str, Tensor]
    parameters: Parameters
    low: Array
    high: Array
    """The lowest and the highest code that each element may have."""
    made_of: str
    """The reason for these codes in words, for messages."""


def related_runs(trial: Trial) -> Iterator[Related]:
    """Yield the run of each metamorphic relation that the spec declares and that applies to the case."""
    for relation in trial.spec.properties:
        if relation.when is None or relation.when(trial.bound):
            related = RELATIONS[relation.relation](trial, relation)
            if related is not None:
                yield related


def _equivariant(trial: Trial, relation: Property) -> Related | None:
    """Return the run on operands reversed along an axis; None if a plugin's constant has that axis."""
    spec, codes = trial.spec, dict(trial.codes)
    constants = dict(trial.parameters.constants)
    for name, values in trial.codes.items():
        axes = spec.inputs[name].axes
        named = (named_axes(axes, values.dim()) or {}) if isinstance(axes, list) else {}
        places = [place for place, axis in named.items() if relation.axis in axis.names]
        if not places:
            continue
        codes[name] = values.flip(places)
        if name in constants:
            constants[name] = Constant(codes[name], _reversed(constants[name].params, places))
    output = next(iter(spec.outputs.values()))
    listed = named_axes(output.axes or [], len(trial.output_shape)) or {}
    place = next(place for place, axis in listed.items() if relation.axis in axis.names)
    channel = channel_axis(spec, trial.bound, len(trial.output_shape))
    # the constants of a plugin's own lie along this axis, and nobody knows how to reverse them
    if channel == place and own_per_channel(trial, channel):
        return None
    parameters = replace(trial.parameters, constants=constants)
    rescale = parameters.rescale
    # multipliers per channel are reversed with the channels
    if rescale is not None and channel == place and rescale.mantissa.dim():
        parameters = replace(
            parameters, rescale=replace(rescale, mantissa=rescale.mantissa.flip(0), shift=rescale.shift.flip(0))
        )
    low, high = (np.flip(ends, place) for ends in owed(trial))
    return Related(codes, parameters, low, high, f"the output reversed along {relation.axis}")


def _reversed(params: QParams, places: list[int]) -> QParams:
    if params.axis is None or params.axis not in places:
        return params
    steps = None if params.steps is None else params.steps.flip(0)
    return replace(params, scale=params.scale.flip(0), zero_point=params.zero_point.flip(0), steps=steps)


def _commutes(trial: Trial, relation: Property) -> Related | None:
    """Return the run in which two operands are swapped; None if their order affects rounding."""
    swap, parameters = _swap_of(trial, relation), _swapped_parameters(trial, relation)
    if swap is None or parameters is None:
        return None
    codes = {name: trial.codes[swap.get(name, name)] for name in trial.codes}
    return Related(codes, parameters, *owed(trial), f"{' and '.join(swap)} swapped")


def _swap_of(trial: Trial, relation: Property) -> dict[str, str] | None:
    # float32 sums round differently in another order
    known = trial.parameters.rescale
    if (known is not None and DECLARED[known.variant].float32) or (
        relation.when is not None and not relation.when(trial.bound)
    ):
        return None
    first, second = relation.operands or ("", "")
    return {first: second, second: first}


def _swapped_parameters(trial: Trial, relation: Property) -> Parameters | None:
    """Return the numbers of the swapped operands; None if the rule provides others for them."""
    own = trial.parameters
    if (swap := _swap_of(trial, relation)) is None:
        return None
    # numbers and tables do not say which operand they belong to, so the rule is asked again
    return _swapped_by_rule(trial, swap) if own.numbers or own.tables else _swapped(own, swap)


def _swapped(own: Parameters, swap: Mapping[str, str]) -> Parameters:
    inputs = {name: own.inputs[swap.get(name, name)] for name in own.inputs}
    if own.rescale is None:
        return replace(own, inputs=inputs)
    factors = {name: own.rescale.factors[swap.get(name, name)] for name in own.rescale.factors}
    return replace(own, inputs=inputs, rescale=replace(own.rescale, factors=factors))


def _swapped_by_rule(trial: Trial, swap: Mapping[str, str]) -> Parameters | None:
    """Return the parameters of the rule for swapped operands: any number may belong to one of them.

    None if the rule then chooses other scales, since the two outputs cannot be compared.
    """
    case, own = trial.case, trial.parameters
    # a case that states its values has none for swapped operands
    if case.data.given:
        return None
    shapes, ranges = (
        {name: held[swap.get(name, name)] for name in held} for held in (dict(case.shapes), dict(case.ranges))
    )
    other = Trial(trial.target, case.but(shapes=shapes, ranges=ranges), trial.engine)
    other.tensors = {name: trial.tensors[swap.get(name, name)] for name in trial.tensors}
    found = other.parameters
    same = all(same_numbers(found.inputs[name], own.inputs[swap.get(name, name)]) for name in own.inputs)
    return found if same and same_numbers(found.outputs["y"], own.outputs["y"]) else None


def _shifted(trial: Trial, relation: Property) -> Related | None:
    """Return the run on codes that are all larger (or smaller) by 1; None if they reach both ends."""
    name = (relation.operands or trial.spec.activations)[0]
    params, values = trial.qparams(name), trial.codes[name]
    if not values.numel() or int(values.max()) + 1 > params.qmax:
        if not values.numel() or int(values.min()) - 1 < params.qmin:
            return None
        moved = values - 1
    else:
        moved = values + 1
    return Related({**trial.codes, name: moved}, trial.parameters, *owed(trial), f"{name} shifted by one code")


def _zero_preserved(trial: Trial, relation: Property) -> Related:
    """Return the run on activations of zero, which gives zero: the codes are the output's zero point."""
    names = relation.operands or trial.spec.activations
    zeros = {n: torch.zeros_like(trial.codes[n]) + trial.qparams(n).zero_point for n in names if n in trial.codes}
    wanted = np.full(trial.output_shape, int(trial.output.zero_point), dtype=np.int64)
    return Related({**trial.codes, **zeros}, trial.parameters, wanted, wanted, "the output's zero point")


RELATIONS: Mapping[str, Callable[[Trial, Property], Related | None]] = {
    "equivariant": _equivariant,
    "commutes": _commutes,
    "shift_invariant": _shifted,
    "zero_preserving": _zero_preserved,
}
