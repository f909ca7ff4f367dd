"""Judges codes, tables and integers by the oracle that a platform's room registers."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from quantizer.conformance.asking import entries_of, grid_of, ratio_of
from quantizer.conformance.checks.multiplier_rules import equal
from quantizer.conformance.checks.replayed_stages import judged
from quantizer.conformance.checks.window_sums import mean_counts, window_sums
from quantizer.conformance.oracle import Array, Asked
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import GraphError
from quantizer.core.rooms import Oracle, loaded, oracle_of
from quantizer.core.shapes import channel_axis
from quantizer.core.verdict import Verdict

DIVIDED = ("mean", "linear")
"""Error models of operators that add codes along axes or windows."""


def entries_of_room(trial: Trial, name: str) -> Array | None:
    """Return the entries of a table by the oracle of the platform's room; None if the oracle does not cover it."""
    oracle = _oracle(trial)
    return None if oracle is None or not oracle.entries else loaded(oracle.entries)(asked(trial, {}), name)


def numbers_of_room(trial: Trial) -> Mapping[tuple[str, ...], Finding]:
    """Return the finding on each group of provided integers that the oracle of the platform's room states."""
    oracle, numbers = _oracle(trial), trial.parameters.numbers
    if oracle is None or not oracle.numbers or not numbers:
        return {}
    stated = loaded(oracle.numbers)(asked(trial, {}))
    return {names: _stated(trial, names, wanted) for names, wanted in stated.items() if set(names) <= numbers.keys()}


def _stated(trial: Trial, names: tuple[str, ...], wanted: tuple[int, ...]) -> Finding:
    got = tuple(trial.parameters.numbers[name] for name in names)
    return equal(", ".join(names), wanted, got, "the rule of the platform's room")


def lost_of_room(trial: Trial) -> Array | None:
    """Return the error beyond half a step that the room's oracle allows in `accuracy`; None without an oracle."""
    oracle = _oracle(trial)
    return None if oracle is None or not oracle.lost else loaded(oracle.lost)(asked(trial, trial.codes))


def judged_by_room(trial: Trial) -> Verdict | None:
    """Return the verdict of the room's oracle for the operator family; None if no oracle covers this case."""
    oracle = _oracle(trial)
    if oracle is None or (wanted := loaded(oracle.codes)(asked(trial, trial.codes))) is None:
        return None
    if np.shape(wanted) != trial.output_shape:
        found, due = list(np.shape(wanted)), list(trial.output_shape)
        raise GraphError(f"{oracle.codes} returned codes of shape {found}, must be {due}: one for each output element.")
    return judged(trial, wanted, f"{oracle.codes}, the oracle of platform {trial.target.platform.platform}")


def _oracle(trial: Trial) -> Oracle | None:
    return oracle_of(trial.spec.quantization.family, trial.target.platform.places)


def asked(trial: Trial, codes: Mapping[str, Tensor]) -> Asked:
    """Return the input of an oracle: grids and numbers of *trial*, and these *codes* of its operands."""
    parameters = trial.parameters
    return Asked(
        trial.spec.op,
        trial.spec.quantization.family,
        trial.target.platform,
        trial.target.scheme,
        trial.variant,
        trial.bound,
        trial.output_shape,
        {name: held.numpy() for name, held in codes.items()},
        {name: grid_of(trial.qparams(name)) for name in trial.tensors if trial.spec.inputs[name].kind != "real"},
        grid_of(trial.output),
        ratio_of(parameters),
        entries_of(parameters),
        parameters.numbers,
        None if trial.spec.error_model.axis is None else trial.axis,
        _channels(trial),
        functools.cache(lambda: _added(trial)),
    )


def _channels(trial: Trial) -> int | None:
    images = next(iter(trial.spec.inputs.values())).spatial
    return 1 if images else channel_axis(trial.spec, trial.bound, len(trial.output_shape))


def _added(trial: Trial) -> tuple[Array, Array] | None:
    """Return the sums over explicit windows and the divisor of each; None for operators without such sums."""
    sums = window_sums(trial)
    if sums is None:
        return None
    terms = mean_counts(trial) if trial.spec.error_model.kind in DIVIDED else None
    return sums, np.ones(sums.shape, np.int64) if terms is None else terms
