"""Compares an operator's goldens with the codes of the function under test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quantizer.conformance.findings import Findings
from quantizer.conformance.judging.known_defects import known_defect
from quantizer.conformance.judging.matches_builtin import matches_builtin
from quantizer.conformance.stored.files import Golden, read_goldens, target_id
from quantizer.conformance.stored.fitting import check_case
from quantizer.conformance.stored.folders import Stores
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.errors import QuantizerError
from quantizer.runtime.engines.protocol import Engine
from quantizer.runtime.raised import raised

SUSPECT = (
    "The kernel may be wrong: look at the operator's other items first. If they are green and the change is meant, "
    "store the new codes."
)
"""The warning before the command that stores new codes, since it would also store those of a wrong kernel."""


def golden_problems(
    targets: Sequence[Target], everything: Sequence[Target], engine: Engine, stores: Stores, step: str
) -> Findings:
    """Return the problems of an operator's goldens: missing, stale, unused or different. Each names the next step."""
    found, shown = Findings(), stores.options.shown
    files = stores.goldens()
    if targets and not files:
        wanted = shown(stores.golden(targets[0].platform.platform))
        text = f"{wanted}: there is no golden. Once the operator's other items are green, store its codes. {step}"
        return Findings([text])
    chosen, known = {target.id: target for target in targets}, {target.id for target in everything}
    seen = set()
    stored = ((golden, path) for path in files for golden in read_goldens(path))
    for golden, file in stored:
        name = target_id(golden.case)
        seen.add(name)
        if name in chosen:
            try:
                compare(found, chosen[name], engine, golden, step)
            except Exception as err:  # noqa: BLE001 - whatever a plugin raises is its failure
                found.problems.append(f"{name}: raised {raised(err)}")
        elif name not in known:
            found.problems.append(f"{name}: a golden in {shown(file)} that nothing uses. {step}")
    for name, target in chosen.items():
        if name not in seen and engine.supports(target.spec, target.scheme, target.platform) is None:
            where = shown(stores.golden(target.platform.platform))
            found.problems.append(f"{name}: no golden in {where}. {step}")
    return found


def compare(found: Findings, target: Target, engine: Engine, golden: Golden, step: str) -> None:
    """Record one golden: the comparison of its codes, or the reason why the engine does not run its case."""
    try:
        check_case(target.spec, golden.case)
    except QuantizerError as err:
        found.compare([f"{target.id}: the golden is stale: {err} {step}"])
        return
    trial = Trial(target, golden.case, engine)
    refused = engine.supports(target.spec, target.scheme, target.platform) or trial.refusal
    if refused is not None:
        found.refused.append(refused)
        return
    got, wanted = trial.got, np.array(golden.codes)
    if _is_of_an_earlier_release(trial, wanted):
        found.refused.append("the golden has codes of an earlier release of the system")
        return
    found.compare([f"{text} {SUSPECT} {step}" for text in _differences(trial, got, wanted)], wanted.size)


def _is_of_an_earlier_release(trial: Trial, wanted: Array) -> bool:
    """Return whether codes differ from a golden only because the engine is of a later release.

    The built-in functions compute that release's settings, so their codes must then differ in the same way.
    """
    if not trial.target.platform.is_later or np.array_equal(trial.got.ravel(), wanted):
        return False
    return matches_builtin(trial, "engine")


def _differences(trial: Trial, got: Array, wanted: Array) -> list[str]:
    name = trial.target.id
    if got.size != wanted.size:
        return [f"{name}: the golden has {wanted.size} codes, the engine gives {got.size}."]
    wrong = np.flatnonzero(got.ravel() != wanted)
    # a real engine may have a declared defect where the golden has the platform's codes
    if not wrong.size or (trial.engine.version and known_defect(trial, "engine") is not None):
        return []
    index = tuple(int(i) for i in np.unravel_index(int(wrong[0]), got.shape))
    return [
        f"{name}: {wrong.size} of {wanted.size} codes differ from the golden; first y{list(index)}: "
        f"expected {wanted[wrong[0]]}, got {got[index]}."
    ]
