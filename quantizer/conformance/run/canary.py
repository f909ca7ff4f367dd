"""Runs the canary at the end of a judging process: items that passed run again through pytest, each with one fault."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from quantizer.conformance.judging.canary import Planted, Witness, faults
from quantizer.conformance.run.collection import ItemState, State, item
from quantizer.conformance.run.items import Runner
from quantizer.conformance.setup.session import Session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.verdict import Verdict
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.runtime.isolation.plugins import CURRENT

MOST = 8
"""The most plugin operators in which faults are planted, in addition to one built-in operator. Each costs a few
milliseconds."""


@dataclass
class Canary:
    """Remembers one passed item of each operator, items of plugins first."""

    states: dict[str, tuple[pytest.Item, State]] = field(default_factory=dict)

    def offer(self, passed: pytest.Item, state: State) -> None:
        """Remember an item that passed."""
        if state.kind == "cases" and state.op not in self.states and state.runner.witness is not None:
            self.states[state.op] = passed, state

    def check(self, stash: pytest.StashKey[ItemState]) -> tuple[int, str]:
        """Return how many faults were planted, and a message about a missed one: empty if the judge found all."""
        of_plugins = {entry.op for entry in REGISTRY.all() if entry.origin != BUILT_IN}
        theirs = [op for op in self.states if op in of_plugins][:MOST]
        ours = [op for op in self.states if op not in of_plugins][:1]
        planted = 0
        for passed, state in (self.states[op] for op in (*theirs, *ours)):
            runner = state.runner
            assert runner.witness is not None
            for fault in faults(runner.witness, state.op, state.platform, runner.session.engine):
                planted += 1
                if missed := _missed(passed, state, runner, runner.witness, fault, stash):
                    return planted, missed
        return planted, next(filter(None, (one.host.damage() for one in CURRENT)), "")


class _CanaryRunner(Runner):
    """Runs one case of an item, with a fault in it; a failure is neither shrunk nor stored."""

    def __init__(self, state: State, session: Session, case: Case) -> None:
        super().__init__(state)
        self.session = session
        self._case = case

    def rows(self) -> None:
        """Judge the case in place of the rows."""
        self.run(self._case)

    # the runner's arguments
    def smallest(self, case: Case, verdicts: list[Verdict], *, died: bool) -> tuple[Trial, list[Verdict]]:  # noqa: ARG002
        """Return the case unshrunk: a planted fault needs no small example."""
        return Trial(self._target, case, self.session.engine), verdicts

    def explained(self, trial: Trial, verdicts: list[Verdict], *, ran: bool) -> str:  # noqa: ARG002
        """Return the reason as a sentence."""
        return "the planted fault"


def _missed(
    passed: pytest.Item, state: State, runner: Runner, found: Witness, fault: Planted, stash: pytest.StashKey[ItemState]
) -> str:
    """Return why the fault does not fail the item in pytest, in its record and in a check; empty if it does."""
    mine = replace(state)
    session = replace(runner.session, engine=fault.engine(runner.session.engine))
    # fills the cached property, so that no other runner is made
    mine.__dict__["runner"] = _CanaryRunner(mine, session, found.case)
    assert passed.parent is not None
    # a whole pytest item: the fault must fail in pytest's report and in the record, not only in a check
    made = item(passed.parent, mine)
    made.stash[stash] = mine
    with fault.block():
        reports = runtestprotocol(made, log=False, nextitem=None)
    called = [report for report in reports if report.when == "call"]
    record = json.loads(getattr(called[0], "op_record", "{}")) if called else {}
    if called and _fails(called[0].outcome, record, fault.checks):
        return ""
    if record.get("checks", {}).get("engine", {}).get("inconclusive"):
        return f"{fault.what} refused a case that it ran before."
    return f"the judge was damaged: it calls a fault that was planted in {fault.what} right."


def _fails(outcome: str, record: Mapping[str, Any], checks: Sequence[str]) -> bool:
    failed = [name for name, check in record.get("checks", {}).items() if check.get("failed")]
    return outcome == "failed" and record.get("outcome") == "failed" and not set(checks).isdisjoint(failed)
