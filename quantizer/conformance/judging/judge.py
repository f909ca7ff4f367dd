"""Runs one trial's checks and settles their verdicts: defects, overridden checks, too wide intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.engine import engine
from quantizer.conformance.checks.exact import exact
from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.checks.invariance import repeat, tiled
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.checks.pipeline import pipeline
from quantizer.conformance.checks.properties import properties
from quantizer.conformance.checks.round_trip import round_trip
from quantizer.conformance.judging.known_defects import known_defect, unstable_defect
from quantizer.conformance.model_cases import OF_RULES
from quantizer.conformance.trials.other_data import with_other_data
from quantizer.conformance.trials.parts import parts_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import QuantizerError, RefusedError
from quantizer.core.verdict import CHECKS, EVERY, Verdict, failure, inconclusive
from quantizer.runtime.isolation.plugins import deaths
from quantizer.runtime.raised import failed, raised
from quantizer.tiling.stacks import parts

VACUOUS_SHARE = 0.05
CODES = ("arithmetic", "accuracy")
"""Checks that compare codes with the required codes."""
OF_DATA = ("engine", "arithmetic")
"""Checks that may be inconclusive because of the data alone."""

FUNCTIONS: Mapping[str, Callable[[Trial], Verdict | None]] = {
    "parameters": parameters,
    "float": float_forward,
    "arithmetic": arithmetic,
    "accuracy": accuracy,
    "exact": exact,
    "tiled": tiled,
    "round_trip": round_trip,
    "pipeline": pipeline,
    "properties": properties,
    "repeat": repeat,
    "engine": engine,
}


def judge(trial: Trial, checks: Sequence[str] = EVERY, held: Sequence[Verdict] = ()) -> list[Verdict]:
    """Return the verdict of every check in *checks* that applies and that the engine's surface allows, in their order.

    A case that an engine cannot run is inconclusive once, unless the provided parameters are wrong. If a function
    under test raises, the check that ran it fails. A rule without a result fails `parameters` only. *held*: verdicts
    on the whole stack that hold for this part of it.
    """
    try:
        if trial.unsupported is not None:
            return [inconclusive("engine", trial.unsupported)]
        # asked here, so that a rule that raises fails `parameters` and nothing else
        _ = trial.parameters
    except Exception as err:  # noqa: BLE001 - whatever a plugin raises is its failure
        return [failure("parameters", f"the quantize rule: {raised(err)}")]
    if trial.refusal is not None:
        provided = _run("parameters", trial) if "parameters" in checks and "parameters" in trial.engine.checks else None
        return [provided if provided is not None and provided.failing else inconclusive("engine", trial.refusal)]
    verdicts = [*_verdicts(trial, checks)]
    return [_settled(verdict, trial, [*verdicts, *held]) for verdict in verdicts]


def judged(trial: Trial, checks: Sequence[str] = EVERY) -> list[tuple[Trial, list[Verdict]]]:
    """Return the trial with its verdicts.

    If a check does not pass on a stack, each part is returned with its own verdicts.

    A defect that excuses, mistrusts or leaves open one part has no effect on the others. A check that passes on the
    whole passes on every part; each part gets its share of the verdict. If a check fails on the whole and on no part,
    the whole comes after its parts.
    """
    verdicts, held, found = _opened(trial, checks)
    if not found:
        return [(trial, verdicts)]
    count = sum(1 for one, _ in found if one is not trial)
    return [
        (one, verdicts if one is trial else _complete(said, held, count, first=place == 0))
        for place, (one, said) in enumerate(found)
    ]


def judged_once(trial: Trial, checks: Sequence[str] = EVERY) -> list[tuple[Trial, list[Verdict]]]:
    """Return the verdicts of `judged`; checks that pass on the whole stack come first and count for each part."""
    verdicts, held, found = _opened(trial, checks)
    if not found:
        return [(trial, verdicts)]
    return [(trial, held), *found]


def _opened(
    trial: Trial, checks: Sequence[str]
) -> tuple[list[Verdict], list[Verdict], list[tuple[Trial, list[Verdict]]]]:
    """Return the verdicts on the whole, those that hold for every part, and each part with the others.

    No parts are judged if all checks pass, if the trial has no parts, or if a process ended. If the whole stack does
    not run, the parts are judged by all checks.
    """
    before = deaths()
    verdicts = judge(trial, checks)
    held = [verdict for verdict in verdicts if _holds_of_parts(verdict)]
    if trial.data_sets == 1 or deaths() > before or len(held) == len(verdicts):
        return verdicts, held, []
    again = {verdict.check for verdict in verdicts} - {verdict.check for verdict in held}
    if "engine" in again:  # a part may run even if the whole does not
        return verdicts, [], _by_parts(trial, verdicts, checks, ())
    needed = again | ({"arithmetic"} if "accuracy" in again else set())  # for its width
    found = _by_parts(trial, verdicts, [name for name in checks if name in needed], held)
    return verdicts, held, [(one, [v for v in said if v.check in again or v.failing]) for one, said in found]


def _complete(said: Sequence[Verdict], held: Sequence[Verdict], count: int, *, first: bool) -> list[Verdict]:
    """Return the verdicts of one part, with its share of the counts of the whole; the first part gets the remainder.

    The count of `parameters` is not divided, because every part has the same provided numbers.
    """
    own = {verdict.check: verdict for verdict in said}
    for verdict in held:
        several = verdict.elements if verdict.check == "parameters" else verdict.elements // count
        rest = verdict.elements % count if first and several != verdict.elements else 0
        empty = verdict.vacuous // count + (verdict.vacuous % count if first else 0)
        own.setdefault(verdict.check, replace(verdict, elements=several + rest, vacuous=empty))
    return sorted(own.values(), key=lambda verdict: CHECKS.index(verdict.check))


def _by_parts(
    trial: Trial, verdicts: Sequence[Verdict], checks: Sequence[str], held: Sequence[Verdict]
) -> list[tuple[Trial, list[Verdict]]]:
    """Return each part with its verdicts, then the whole if a check fails on it and on no part.

    If no part fails alone, each part is judged by its codes in the result of the whole stack. A failure is reported
    for a part that was run alone. *held*: verdicts on the whole that hold for every part.
    """
    # shares of the whole's result need no further run
    if _shares_hold(verdicts):
        # one code for each element of the whole is one for each element of a part
        sharp = [verdict for verdict in held if _is_sharp([verdict])]
        named = [name for name in checks if all(verdict.check != name for verdict in sharp)]
        found = [(part, judge(part, named, sharp)) for part in parts_of(trial, named)]
        if not any(verdict.failing for _, several in found for verdict in several):
            return found
    alone = [Trial(trial.target, piece.case, trial.engine) for piece in parts(trial.spec, trial.case)]
    found = [(part, judge(part, checks)) for part in alone]
    shown = {verdict.check for _, several in found for verdict in several if verdict.failing}
    failing = {verdict.check for verdict in verdicts if verdict.failing}
    return found if failing <= shown else [*found, (trial, [*verdicts])]


def _shares_hold(verdicts: Sequence[Verdict]) -> bool:
    """Return whether parts may be judged by their shares: the whole ran and failed nowhere."""
    refused = any(verdict.check == "engine" and not _holds_of_parts(verdict) for verdict in verdicts)
    return not refused and not any(verdict.failing for verdict in verdicts)


def _holds_of_parts(verdict: Verdict) -> bool:
    """Return whether a stack's verdict holds for each part: a pass, or a check that does not apply.

    `arithmetic` may be inconclusive only for the data of one part, such as a sum that may overflow the accumulator.
    """
    return verdict.status == "pass" or (verdict.status == "inconclusive" and verdict.check not in OF_DATA)


def _verdicts(trial: Trial, checks: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdict of each check.

    If the process of plugins ends during a check, the case fails and no check follows.
    """
    before = deaths()
    for name in CHECKS:
        if name in checks and name in trial.engine.checks and deaths() == before:
            verdict = _run(name, trial)
            if verdict is not None:
                yield verdict


def _run(name: str, trial: Trial) -> Verdict | None:
    if trial.case.data.given and name in OF_RULES:
        return inconclusive(name, "scales and zero points are the model's")
    try:
        verdict = FUNCTIONS[name](trial)
        return _on_other_data(trial, verdict) if name == "repeat" and verdict is not None else verdict
    except RefusedError as err:
        return inconclusive(name, str(err))
    except Exception as err:  # noqa: BLE001 - whatever an engine raises is its failure
        return failure(name, failed(err))


def _on_other_data(trial: Trial, verdict: Verdict) -> Verdict:
    """Return the verdict of `repeat`. It fails if a plugin is wrong on data or parameters that are new to it."""
    others = () if verdict.failing else with_other_data(trial)
    found = next((one for other in others for one in _of_codes(other) if one.failing), None)
    if found is None:
        return verdict
    said = f": {found.reason}" if found.reason else ""
    beside = f"{found.check} of a case that differs in its data or in one other thing, run after this one"
    return replace(found, check="repeat", reason=f"{beside}{said}")


def _of_codes(other: Trial) -> list[Verdict]:
    """Return the verdicts on the codes of *other*, and on its parameters if the rule was asked for them."""
    return judge(other, CODES if other.is_provided else ("parameters", *CODES))


def _settled(verdict: Verdict, trial: Trial, verdicts: Sequence[Verdict]) -> Verdict:
    try:
        return _discounted(verdict, trial, verdicts)
    except Exception as err:
        if trial.engine.version and not isinstance(err, QuantizerError):
            raise  # a real engine raises in its own process, so this error is ours
        # a function under test that raises here excuses nothing
        return verdict if verdict.failing else failure(verdict.check, failed(err))


def _discounted(verdict: Verdict, trial: Trial, verdicts: Sequence[Verdict]) -> Verdict:
    if verdict.failing:
        reason = known_defect(trial, verdict.check)
        return replace(verdict, status="defect", reason=reason) if reason else verdict
    if verdict.status == "pass" and (reason := unstable_defect(trial, verdict.check)):
        return replace(verdict, status="defect", reason=reason)
    if verdict.check == "accuracy" and verdict.status == "pass" and not _is_sharp(verdicts):
        # as if all vacuous elements lay in one part
        if verdict.elements and verdict.vacuous * trial.data_sets > VACUOUS_SHARE * verdict.elements:
            return replace(verdict, status="mistrusted", reason="more than 5 % of the elements are vacuous")
        if any(part.case.data.sets == ("random",) and is_constant(part) for part in parts_of(trial)):
            return replace(verdict, status="mistrusted", reason="the output is almost constant or clipped")
    return verdict


def _is_sharp(verdicts: Sequence[Verdict]) -> bool:
    return any(v.check == "arithmetic" and v.status == "pass" and 0 < v.width <= 1 for v in verdicts)


def is_constant(trial: Trial) -> bool:
    """Return whether more than nine outputs in ten share one code, or sit at an end of the codes."""
    codes = trial.got.ravel()
    if codes.size < 2:
        return False
    _, counts = np.unique(codes, return_counts=True)
    ends = np.count_nonzero((codes <= trial.output.qmin) | (codes >= trial.output.qmax))
    return bool(max(int(counts.max()), int(ends)) > 0.9 * codes.size)
