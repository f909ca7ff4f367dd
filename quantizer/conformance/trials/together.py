"""Runs several trials in one call of a function under test that takes batches, or in one message to a real engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.conformance.generation.batches import sibling
from quantizer.conformance.generation.hashing import key, sample_number
from quantizer.conformance.trials.provided import copies
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import GraphError
from quantizer.core.verdict import Verdict, failure
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.protocol import Asked
from quantizer.runtime.raised import raised

AHEAD = 8
"""The largest number of cases that a real engine gets in one message."""
SIZES = (2, 3, 5, 8, 16, 21, 37)
"""Sizes of the batches that `repeat` runs, one size per case: less than a group of 4, 8, 16 or 32 trials, whole groups,
and whole groups with a rest."""
SIBLINGS = 2
"""The number of other cases of the structure that are trials of such a batch."""


def ask_ahead(trials: Sequence[Trial]) -> None:
    """Ask a real engine in one message for the codes and float results of *trials*; an error is a result, too."""
    engine = trials[0].engine if trials else None
    if not isinstance(engine, ExternalEngine):
        return
    ready = [trial for trial in trials if _is_asked(trial)]
    asked = [Asked(trial.call, trial.codes, trial.parameters) for trial in ready]
    floats = ready if "float" in engine.checks else []
    results = engine.run_each([*asked, *(Asked(trial.call, trial.tensors, None) for trial in floats)])
    # the codes come first, the float results behind them
    for trial, result in zip(ready, results, strict=False):
        made = _made(result)
        if isinstance(made, Exception):
            Trial.outcome.raises(trial, made)
        else:
            trial.outcome = Staged(made, {})
    for trial, result in zip(floats, results[len(ready) :], strict=True):
        trial.float_result = _made(result)


def _made(result: Callable[[], Tensor]) -> Tensor | Exception:
    try:
        return result()
    except Exception as err:  # noqa: BLE001 - the checks that read the result fail by it
        return err


def _is_asked(trial: Trial) -> bool:
    """Return whether the trial's case goes to the engine."""
    try:
        return trial.declined is None and bool(trial.codes)
    except Exception:  # noqa: BLE001 - the rule raises again when the trial runs alone, and fails it
        return False


def takes_batches(trial: Trial) -> bool:
    """Return whether the function under test takes several trials in one call."""
    engine = trial.engine
    return isinstance(engine, BuiltinEngine) and engine.batches(trial.call, trial.target.platform)


def run_together(trials: Sequence[Trial]) -> list[tuple[Trial, Verdict]]:
    """Run the trials of one structure in one call, if the function under test supports it; each gets its own result.

    Return the first trial of each batch that gave no codes, with a failing verdict. Such trials then run alone.
    """
    found = []
    for several in _structures(trials):
        if len(several) > 1 and takes_batches(several[0]) and (why := _run(several)) is not None:
            text = f"a batch of {len(several)} trials of one structure: {why}"
            found.append((several[0], failure("repeat", text)))
    return found


def _structures(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Group trials that differ only in ranges, parameters and data; the number of their data sets may differ."""
    found: dict[object, list[Trial]] = {}
    for trial in trials:
        case = trial.case
        structure = (tuple(case.shapes.items()), tuple(case.attrs.items()), case.activation, case.order)
        found.setdefault(structure, []).append(trial)
    return [*found.values()]


def _run(trials: Sequence[Trial]) -> str | None:
    """Give each trial its result from one call; return the reason if the call failed."""
    engine = trials[0].engine
    assert isinstance(engine, BuiltinEngine)
    try:
        if any(trial.unsupported is not None for trial in trials):
            return None
        several = [copies(trial.codes) for trial in trials]
        parameters = [trial.parameters for trial in trials]
    except Exception:  # noqa: BLE001 - the rule raises again when a trial runs alone, and fails it
        return None
    try:
        with trials[0].placing():
            made = _codes(engine.run_together(trials[0].call, several, parameters))
    except Exception as err:  # noqa: BLE001 - whatever a function under test raises is its failure
        return f"raised {raised(err)}"
    for trial, staged in zip(trials, made, strict=True):
        trial.outcome = staged
    return None


def _codes(made: Sequence[Staged]) -> list[Staged]:
    """Return results whose codes are int64; GraphError if they are not integers."""
    wrong = [one.codes.dtype for one in made if one.codes.is_floating_point() or one.codes.dtype == torch.bool]
    if wrong:
        raise GraphError(f"the integer forward returned {wrong[0]} for a batch: codes are integers. Round them.")
    return [Staged(one.codes.to(torch.int64), one.stages) for one in made]


def mixed_batch(trial: Trial) -> list[tuple[Trial, Tensor]]:
    """Return the trials of a batch that has the case in it, each with the codes that it gets there.

    The other trials have ranges, constants and data of their own; the last has the constants of the case, its data in
    reverse order and another zero point of the output. Empty if the function under test takes one case per call.
    """
    if not takes_batches(trial):
        return []
    engine = trial.engine
    assert isinstance(engine, BuiltinEngine)
    count = SIZES[key(sample_number(trial.case), "batch") % len(SIZES)]
    turns = [trial, *_siblings(trial), _moved(trial)]
    given = [turns[_turn(place, len(turns))] for place in range(count)]
    operands = [copies(one.codes) for one in given]
    with trial.placing():
        made = _codes(engine.run_together(trial.call, operands, [one.parameters for one in given]))
    return [(one, staged.codes) for one, staged in zip(given, made, strict=True)]


def _turn(place: int, count: int) -> int:
    """Return which of *count* trials is at a place: the digits' sum (Thue and Morse), which repeats with no period."""
    total = 0
    while place:
        place, digit = divmod(place, count)
        total += digit
    return total % count


def _siblings(trial: Trial) -> Iterator[Trial]:
    """Yield other cases of the structure, without those that give no codes alone."""
    for number in range(SIBLINGS):
        other = Trial(trial.target, sibling(trial.target, trial.case, number), trial.engine)
        # every case of the structure is judged alone elsewhere: one that declines or raises says nothing of batches
        if other.refusal is None and _gives_codes(other):
            yield other


def _gives_codes(trial: Trial) -> bool:
    try:
        return trial.outcome is not None
    except Exception:  # noqa: BLE001 - see `_siblings`
        return False


def _reversed(trial: Trial) -> dict[str, Tensor]:
    """Return the activations' codes in reverse order; constants and indices stay, because parameters belong to them."""
    inputs = trial.spec.inputs
    return {
        name: values.flip(tuple(range(values.dim()))).contiguous()
        if inputs[name].role == "activation" and inputs[name].kind == "value"
        else values
        for name, values in trial.codes.items()
    }


def _moved(trial: Trial) -> Trial:
    """Return the trial of the reversed codes with another zero point of the output."""
    output = trial.output
    # a zero point at the upper end moves down
    step = 1 if int(output.zero_point.max()) < output.qmax else -1
    moved = replace(output, zero_point=output.zero_point + step)
    other = Trial(trial.target, trial.case, trial.engine)
    other.provide(replace(trial.parameters, outputs={**trial.parameters.outputs, "y": moved}))
    other.codes = _reversed(trial)
    return other
