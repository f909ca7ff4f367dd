"""The work of a campaign's worker: it runs a unit or shrinks a failure. Arguments and results are strings."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
from typing import Any

from quantizer.conformance.campaign.entries import BINS
from quantizer.conformance.campaign.plan import Plan
from quantizer.conformance.failures.message import headline
from quantizer.conformance.failures.shrink import shrink
from quantizer.conformance.generation.batches import RANGES, member
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.stacks import PARTS
from quantizer.conformance.judging.judge import judge, judged_once
from quantizer.conformance.judging.schedule import OF_BATCHES, Schedule
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.together import ask_ahead, run_together
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.verdict import EVERY, Verdict
from quantizer.runtime.isolation.plugins import judged

SHRINK_RUNS = 200


def run_unit(plan: str, number: int, target: str, examples: int) -> str:
    """Return the results of one unit's cases as JSON."""
    known = Plan.from_json(plan, "campaign")
    session, targets = _opened(plan)
    where, found = targets[target], Tally(number, target)
    real = session.options.real is not None
    checks = Schedule(where, EVERY, {} if real else OF_BATCHES)
    seed, left = key(known.seed, str(number), target), examples
    for first in itertools.count(step=RANGES):
        cases: list[Case] = []
        for place in range(first, first + RANGES):  # the cases of one structure
            if left <= 0:
                break
            try:
                cases.append(member(where, seed, place, 1 if real else min(left, PARTS)))
            except Exception as err:  # noqa: BLE001 - whatever a spec or a plugin's reference raises is its failure
                found.broke(f"no case could be built: {type(err).__name__}: {err}")
                left -= 1
            else:
                left -= len(cases[-1].data.sets)
        trials = [Trial(where, case, session.engine) for case in cases]
        ask_ahead(trials)
        # the cases of a structure run in one call first, which must give the same results as separate calls
        for one, verdict in run_together(trials):
            found.add(one.case, [verdict], again=True)
        for one in trials:
            for index, (trial, verdicts) in enumerate(judged_once(one, checks.checks(one.case))):
                found.add(trial.case, verdicts, again=index > 0)
        if left <= 0:
            break
    return found.to_json()


def lost_unit(number: int, target: str, why: str) -> str:
    """Return as JSON the record of a unit that repeatedly ended its process."""
    found = Tally(number, target)
    found.broke(why)
    return found.to_json()


def shrink_case(plan: str, case: str, check: str) -> str:
    """Return the smallest case on which *check* still fails, as JSON."""
    session, targets = _opened(plan)
    whole = Case.from_json(case, "campaign")
    target = targets[f"{whole.op}-{whole.scheme}-{whole.platform}"]

    def fails(candidate: Case) -> bool:
        return any(v.failing for v in judge(Trial(target, candidate, session.engine), (check,)))

    return shrink(target, whole, fails, runs=SHRINK_RUNS).to_json()


class Tally:
    """The results of a unit: verdicts by check, histograms of ratios, failing cases."""

    def __init__(self, number: int, target: str) -> None:
        self._content: dict[str, Any] = {"unit": number, "target": target, "examples": 0, "elements": 0}
        self._checks: dict[str, dict[str, int]] = {}
        self._histograms: dict[str, list[int]] = {}
        self._failures: list[dict[str, str]] = []

    def add(self, case: Case, verdicts: list[Verdict], *, again: bool = False) -> None:
        """Count the verdicts of one case once for each of its data sets; histograms take only its worst ratio.

        *again*: whether the case is a part of a stack that was counted, or the stack itself, for failures that no part
        shows.
        """
        sets = len(case.data.sets)
        self._content["examples"] += 0 if again else sets
        sets = 1 if again else sets
        self._content["elements"] += 0 if again else max((v.elements for v in verdicts), default=0)
        for verdict in verdicts:
            statuses = self._checks.setdefault(verdict.check, {})
            statuses[verdict.status] = statuses.get(verdict.status, 0) + sets
            if verdict.status in ("pass", "mistrusted"):
                bins = self._histograms.setdefault(verdict.check, [0] * (BINS + 1))
                # a ratio of exactly 1 is inside the bound and belongs to the last of the BINS bins
                bins[min(BINS, int(verdict.ratio * BINS)) if verdict.ratio < 1 else BINS - (verdict.ratio == 1)] += 1
        first = next((v for v in verdicts if v.failing), None)
        if first is not None:
            self._failures.append(
                {"cause": cause(case, first), "check": first.check, "finding": headline(first), "case": case.to_json()}
            )

    def broke(self, why: str) -> None:
        """Count an error raised before a case was made."""
        first = why.splitlines()[0]
        name = self._content["target"]
        self._failures.append({"cause": f"{name}: {first}", "check": "run", "finding": first, "case": ""})

    def to_json(self) -> str:
        """Return one line with sorted keys."""
        content = {
            **self._content,
            "checks": self._checks,
            "histograms": self._histograms,
            "failures": self._failures,
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


def cause(case: Case, verdict: Verdict) -> str:
    """Return the key of a failure's cause: operator, platform, check, and the error or the wrong tensor."""
    how = verdict.worst.tensor if verdict.worst is not None else verdict.reason
    return f"{case.op} {case.platform} {verdict.check}: {how}"


# a worker gets many units of one plan
@functools.lru_cache(maxsize=2)
def _opened(plan: str) -> tuple[Session, dict[str, Target]]:
    options = Plan.from_json(plan, "campaign").options()
    plugins = judged(options.plugins, dict(os.environ))
    session = open_session(options, tuple(folder for plugin in plugins for folder in plugin.specs))
    targets = [target for spec in session.library.specs.values() for target in session.all_targets(spec)]
    gc.collect()
    gc.freeze()  # these objects live as long as the worker, so the garbage collector need not visit them
    return session, {target.id: target for target in targets}
