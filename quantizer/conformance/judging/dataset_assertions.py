"""Checks that a directed data set (`ties`, `saturation`, ...) has the property that it is made for."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from fractions import Fraction

import numpy as np

from quantizer.conformance.generation.near_block_sums import differs_in_float32, is_near_block_sum
from quantizer.conformance.generation.near_sums import is_near_sum, rivals
from quantizer.conformance.generation.room_sums import has_own_rule
from quantizer.conformance.grids import exact_position, listed, positions
from quantizer.conformance.trials.parts import part_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import channel_axis, variables

FULL = 0.9
NEAR = 2.0**-12
"""The largest distance, in codes, at which a value counts as near a tie."""


def hits_target(trial: Trial) -> bool | None:
    """Return whether the data (of a stack: its first part) have their set's property; None without a property."""
    aim = AIMS.get(trial.case.data.sets[0])
    return aim(part_of(trial, 0)) if aim else None


def missed_targets(trial: Trial, names: Container[str]) -> set[str]:
    """Return the data sets among *names* whose property is missing in every part of the case."""
    found: dict[str, bool] = {}
    for place, name in enumerate(trial.case.data.sets):
        if name in names and not found.get(name):
            found[name] = hits_target(part_of(trial, place)) is not False
    return {name for name, reached in found.items() if not reached}


def _ties(trial: Trial) -> bool:
    """Return whether some output lies exactly between two codes, or codes are copied.

    For an index operator: whether some selected element equals another one. For a comparison: whether a pair is equal.
    """
    kind = trial.spec.error_model.kind
    platform, family = trial.target.platform, trial.spec.quantization.family
    if (kind != "mean" and family in platform.same_as_input) or family in platform.ones_complement_outputs:
        return True
    if kind == "index":
        axis = trial.axis
        codes = trial.codes[trial.spec.activations[0]].numpy()
        codes = -codes if trial.spec.error_model.smallest else codes
        return bool(((codes == codes.max(axis=axis, keepdims=True)).sum(axis=axis) > 1).any())
    if kind == "comparison":
        return bool(np.equal(*(values.numpy() for values in trial.values.values())).any())
    scale = Fraction(float(trial.output.scale))
    y = trial.y_hat[np.isfinite(trial.y_hat)]
    if listed(trial.output) is not None:
        places = positions(y / float(scale), trial.output) % 1.0
        near = y[np.abs(places - 0.5) < NEAR]
        return any(exact_position(Fraction(float(v)) / scale, trial.output) % 1 == Fraction(1, 2) for v in near)
    twice = y * 2 / float(scale)
    # float64 selects the few candidates, and rationals decide
    return any(
        (Fraction(float(y[i])) / scale * 2) % 2 == 1 for i in np.flatnonzero(np.abs(twice - np.rint(twice)) < 2.0**-30)
    )


def _saturation(trial: Trial) -> bool:
    """Return whether some output, before saturation, is within two codes of an end or beyond, or the range is fixed."""
    platform = trial.target.platform
    if trial.spec.quantization.family in platform.same_as_input or trial.spec.op in {
        **platform.fixed_outputs,
        **platform.fixed_ranges,
    }:
        return True
    real = positions(trial.y_hat / float(trial.output.scale), trial.output) + int(trial.output.zero_point)
    return bool(((real >= trial.output.qmax - 2) | (real <= trial.output.qmin + 2)).any())


def _accumulator_limit(trial: Trial) -> bool:
    """Return whether some sum reaches nine tenths of the largest sum that its codes and terms allow."""
    if trial.spec.error_model.kind != "bilinear":
        return True
    largest = float(trial.sum_magnitudes.max(initial=0.0))
    ones = {
        name: values.abs().clamp(min=1.0) * 0 + float(values.abs().max())
        for name, values in trial.centred.items()
        if trial.spec.inputs[name].role != "bias" and values.numel()
    }
    possible = float(trial.reference(ones).max(initial=0.0))
    return largest >= FULL * possible


def _scale_spread(trial: Trial) -> bool:
    """Return whether scales of channels or operands differ by 2**10 or more, or all channels or operands share one."""
    part = trial.target.weight
    if trial.spec.quantization.family in trial.target.platform.shared_parameters:
        return True
    if part is not None and part.granularity == "tensor" and len(trial.parameters.inputs) == 1:
        return True
    scales = [params.scale for params in trial.parameters.inputs.values()]
    scales += [constant.params.scale for constant in trial.parameters.constants.values()]
    flat = np.concatenate([s.numpy().ravel() for s in scales])
    return bool(flat.max() / flat.min() >= 2.0**10)


def _zero_point_extremes(trial: Trial) -> bool:
    """Return whether a zero point of an activation (of the output for real inputs) is 0 or near an end of the codes."""
    return any(
        int(params.zero_point) in (params.qmin, params.qmax, params.qmin + 1, params.qmax - 1)
        or int(params.zero_point) == 0
        for params in (trial.parameters.inputs or trial.parameters.outputs).values()
    )


def _near_ties(trial: Trial) -> bool:
    """Return whether a sum has another code under an arithmetic that differs next to ties, or lies near a tie."""
    if has_own_rule(trial.target):
        return True  # no number says how far the room's rule is from a tie
    if is_near_sum(trial.target):
        bound = variables(trial.spec, trial.case.shapes, trial.case.attrs)
        axis = channel_axis(trial.spec, bound, trial.sums.ndim) or 0
        sums, got = (
            np.moveaxis(values, axis, 0).reshape(trial.sums.shape[axis], -1) for values in (trial.sums, trial.got)
        )
        return bool((rivals(trial.parameters, sums) != got).any())
    if is_near_block_sum(trial.target):
        given = {name: values.double().numpy() for name, values in trial.values.items()}
        return differs_in_float32(trial.target, trial.case, given, trial.parameters)
    beside = np.abs(trial.y_hat / float(trial.output.scale) % 1.0 - 0.5)
    return bool(((beside > 0) & (beside < NEAR)).any())


AIMS: Mapping[str, Callable[[Trial], bool]] = {
    "ties": _ties,
    "saturation": _saturation,
    "accumulator_limit": _accumulator_limit,
    "scale_spread": _scale_spread,
    "zero_point_extremes": _zero_point_extremes,
    "near_ties": _near_ties,
}
