"""Updates goldens: rejects codes that another check fails, shows what changed, and writes all files or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.stored.files import MAX_CODES, Golden, read_goldens, target_id
from quantizer.conformance.stored.fitting import check_case
from quantizer.conformance.stored.folders import Stores
from quantizer.conformance.stored.golden_review import Change, change_of
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.errors import CaseError, QuantizerError
from quantizer.core.files import replace_files
from quantizer.core.shapes import infer_shapes
from quantizer.core.verdict import CHECKS
from quantizer.runtime.engines.protocol import Engine

ATTEMPTS = 64


def new_golden(target: Target, engine: Engine, reason: str) -> Golden:
    """Return a golden of *target*: the first generated case of at most 256 codes that all checks pass.

    CaseError if a check fails, because a golden never stores codes that another check rejects.
    """
    for attempt in range(ATTEMPTS):
        case = build_case(target, HashChoices(key(attempt, "golden", target.id), {"data": "random"}))
        # one output says little, and more than MAX_CODES make the file hard to review
        small = 1 < np.prod(infer_shapes(target.spec, case.shapes, case.attrs)["y"]) <= MAX_CODES
        if small and Trial(target, case, engine).unsupported is None:
            return refreshed(target, engine, case, reason)
    raise CaseError(f"{target.id}: no generated case has between 2 and {MAX_CODES} outputs.")


def refreshed(target: Target, engine: Engine, case: Case, reason: str, before: Golden | None = None) -> Golden:
    """Return the golden of *case* with its current codes, and the changes.

    CaseError if another check fails.
    """
    trial = Trial(target, case, engine)
    failing = [v.check for v in judge(trial, CHECKS) if v.failing]
    if failing:
        raise CaseError(
            f"{target.id}: {', '.join(failing)} fails on the golden case. Fix that before updating goldens."
        )
    codes = tuple(int(code) for code in trial.got.ravel())
    if before is None:
        return Golden(case, codes, engine.name, reason)
    if before.codes == codes:
        return before
    return Golden(case, codes, engine.name, reason, (*before.history, change_of(trial, before.codes, reason)))


def update_goldens(
    stores: Stores, targets: Sequence[Target], everything: Sequence[Target], engine: Engine, reason: str
) -> list[str]:
    """Write the goldens of *targets* again: all of them, or none if one fails.

    Goldens of other targets are kept if they still apply. Each is written where goldens of its platform belong. Returns
    one line for each changed golden, and how many are new or unused. CaseError if the engine is of a later release than
    the one whose settings the platform's file gives first.
    """
    known = {target.id for target in everything}
    chosen = {t.id: t for t in targets if engine.supports(t.spec, t.scheme, t.platform) is None}
    if later := [t.id for t in chosen.values() if t.platform.is_later]:
        text = "goldens hold codes of the settings that the platform's file gives first. Use an engine of that release."
        raise CaseError(f"{later[0]}: the engine is of a later release: {text}")
    made: dict[Path, list[Golden]] = {path: [] for path in stores.goldens()}
    said: list[str] = []

    def put(golden: Golden) -> None:
        made.setdefault(stores.golden(golden.case.platform), []).append(golden)

    for path in stores.goldens():
        unused = 0
        for golden in read_goldens(path):
            name = target_id(golden.case)
            if name in chosen:
                new = _updated(chosen.pop(name), engine, golden, reason)
                put(new)
                if new is not golden:
                    said.append(new.history[-1].text(name, len(new.codes)))
            elif name in known:
                put(golden)
            else:
                unused += 1
        if unused:
            said.append(f"{path.name}: {unused} that nothing uses removed")
    if chosen:
        said.append(f"{stores.op}.jsonl: {len(chosen)} new")
    for target in chosen.values():
        put(new_golden(target, engine, reason))
    # sorted, so that the same goldens give the same file
    lines = {path: sorted(golden.to_line() for golden in goldens) for path, goldens in made.items()}
    replace_files({path: "".join(f"{line}\n" for line in found) for path, found in lines.items()})
    return said


def _updated(target: Target, engine: Engine, golden: Golden, reason: str) -> Golden:
    """Return *golden*: unchanged, with the current codes if they differ, or with a new case if its own is illegal."""
    if _is_legal(target, golden.case):
        return refreshed(target, engine, golden.case, reason, golden)
    return replace(new_golden(target, engine, reason), history=(*golden.history, Change(reason)))


def _is_legal(target: Target, case: Case) -> bool:
    try:
        check_case(target.spec, case)
    except QuantizerError:
        return False
    return True
