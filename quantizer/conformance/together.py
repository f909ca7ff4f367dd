"""Trials of one structure in one call of a function under test that takes batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.conformance.checks.elements import judge_codes
from quantizer.conformance.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.runtime.engines.builtin import BuiltinEngine

TRIALS = 3
"""Trials of the batch that `repeat` runs: the case is its first and its last."""


def takes_batches(trial: Trial) -> bool:
    """Return whether what runs takes several trials in one call."""
    engine = trial.engine
    return isinstance(engine, BuiltinEngine) and engine.batches(trial.call, trial.target.platform)


def run_together(trials: Sequence[Trial]) -> None:
    """Run the trials of one structure in one call where the function under test takes it; each has its own result.

    If a batch raises, each trial runs alone, and the check that runs a batch reports the error.
    """
    for several in _structures(trials):
        if len(several) > 1 and takes_batches(several[0]):
            _run(several)


def _structures(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Return trials that differ in ranges, parameters and data alone, together; their sets may differ in number."""
    found: dict[object, list[Trial]] = {}
    for trial in trials:
        case = trial.case
        structure = (tuple(case.shapes.items()), tuple(case.attrs.items()), case.activation, case.order)
        found.setdefault(structure, []).append(trial)
    return [*found.values()]


def _run(trials: Sequence[Trial]) -> None:
    engine = trials[0].engine
    assert isinstance(engine, BuiltinEngine)
    try:
        if any(trial.unsupported is not None for trial in trials):
            return
        several = [{name: codes.clone() for name, codes in trial.codes.items()} for trial in trials]
        made = engine.run_together(trials[0].call, several, [trial.parameters for trial in trials])
    except Exception:  # noqa: BLE001 - whatever a function under test raises is found by the check that runs a batch
        return
    if all(map(_holds_codes, made)):
        for trial, staged in zip(trials, made, strict=True):
            trial.outcome = Staged(staged.codes.to(torch.int64), staged.stages)


def _holds_codes(staged: Staged) -> bool:
    return not staged.codes.is_floating_point() and staged.codes.dtype != torch.bool


def in_a_batch(trial: Trial) -> Verdict | None:
    """Judge a batch of the case, another trial, and the case again: each has the codes that it has alone.

    The other trial has the operands reversed and another zero point of the output. None where what runs takes one case.
    """
    if not takes_batches(trial):
        return None
    engine = trial.engine
    assert isinstance(engine, BuiltinEngine)
    codes, parameters = (
        [trial.codes, _reversed(trial), trial.codes],
        [trial.parameters, _moved(trial), trial.parameters],
    )
    between = trial.run(trial.call, codes[1], parameters[1]).codes
    copies = [{name: values.clone() for name, values in own.items()} for own in codes]
    made = engine.run_together(trial.call, copies, parameters)
    verdict = None
    for place, (staged, alone) in enumerate(
        zip(made, (trial.outcome.codes, between, trial.outcome.codes), strict=True)
    ):
        wanted = alone.numpy()
        text = f"the codes of trial {place} alone, which is one of a batch of {TRIALS}"
        verdict = judge_codes("repeat", trial, wanted, wanted, got=staged.codes.to(torch.int64).numpy(), made_of=text)
        if verdict.failing:
            return replace(verdict, reason=f"trial {place} of a batch of {TRIALS} has other codes than alone")
    return None


def _reversed(trial: Trial) -> Mapping[str, Tensor]:
    """Return the codes of the activations in reverse; constants and indices as they are, which parameters belong to."""
    inputs = trial.spec.inputs
    return {
        name: values.flip(tuple(range(values.dim()))).contiguous()
        if inputs[name].role == "activation" and inputs[name].kind == "value"
        else values
        for name, values in trial.codes.items()
    }


def _moved(trial: Trial) -> Parameters:
    """Return the parameters with another zero point of the output."""
    output = trial.output
    step = 1 if int(output.zero_point.max()) < output.qmax else -1
    moved = replace(output, zero_point=output.zero_point + step)
    return replace(trial.parameters, outputs={**trial.parameters.outputs, "y": moved})
