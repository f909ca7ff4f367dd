"""Runs the items: one function for each kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import pytest

from quantizer.conformance.checks.reject import reject_problems
from quantizer.conformance.failures.message import describe, headline, replay_path, write_replay
from quantizer.conformance.failures.shrink import shrink
from quantizer.conformance.findings import Findings
from quantizer.conformance.generation.builder import build_case, covering_rows_of, single_bin_choices, wanted_coverage
from quantizer.conformance.generation.case_classes.deep import leaves
from quantizer.conformance.generation.choice_sources import HypothesisChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.extra_cases import EXTRA_CASES, shared_cases
from quantizer.conformance.generation.stacks import row_case, seeded_case
from quantizer.conformance.judging.canary import Witness, witness
from quantizer.conformance.judging.judge import judge, judged
from quantizer.conformance.judging.recorder import LEFT, Recorder
from quantizer.conformance.judging.schedule import schedule
from quantizer.conformance.run.facts import named_by_path_alone
from quantizer.conformance.run.spec_item import spec_problems
from quantizer.conformance.run.stored_items import StoredCases
from quantizer.conformance.setup.profiles import PROFILES
from quantizer.conformance.setup.session import Session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.together import AHEAD, ask_ahead
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.errors import FunctionError, QuantizerError
from quantizer.core.record import Record
from quantizer.core.verdict import Verdict
from quantizer.ops import REGISTRY
from quantizer.runtime.engines.protocol import Engine
from quantizer.runtime.isolation.plugins import deaths

if TYPE_CHECKING:
    from quantizer.conformance.run.collection import State


T = TypeVar("T")


class Runner:
    """Runs one item: judges its cases, and shrinks and stores the first failure once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._spec = state.spec
        self.session: Session = state.session().at(state.level)
        empty = Record(
            state.name,
            state.spec.op,
            state.kind,
            "skipped",
            scheme=state.scheme,
            platform=state.platform,
            engine=_engine_label(self.session.engine, state.platform),
            isa=self.session.engine.isa,
        )
        self._recorder = Recorder(empty)
        self._failure = ""
        self.changes: list[str] = []
        """What an update changed in the goldens."""
        self._failed: str | None = None
        self.left_out: str | None = None
        """Why the item does not run, if the engine or a declaration says so."""
        self._waiting: list[tuple[Case, bool]] = []
        """The cases that a real engine gets in one message, and whether the figures of each count."""
        self.witness: Witness | None = None
        """A passed case, and the checks that must find a planted fault in it."""
        if state.scheme:
            library = self.session.library
            self._target = Target(state.spec, library.scheme(state.scheme), library.platform(state.platform))
            self._schedule = schedule(self._target, state.options)

    def record(self, outcome: str, failure: str = "") -> Record:
        """Return the item's record with pytest's outcome. *failure*: the reason, if the item failed."""
        # only an item that ran to its end can lack coverage: after a failure nobody looked for the rest
        complete = self._state.kind == "cases" and outcome == "passed"
        wanted = wanted_coverage(self._spec, self._target.platform) if complete else set()
        wanted |= {LEFT} if complete and leaves(self._target) else set()
        return self._recorder.record(outcome, wanted, self._failure or failure)

    def replaced(self) -> list[str]:
        """Return which built-in functions of the operator a plugin replaces."""
        return [str(entry) for entry in REGISTRY.replacements() if entry.op == self._spec.op]

    def draw(self, integers: Callable[[int, int], int], passed: type[Exception]) -> Case:
        """Return one case from Hypothesis's integers; *passed*: the exceptions that end a draw."""
        return self._built(lambda: build_case(self._target, HypothesisChoices(integers)), passed)

    @property
    def _alone(self) -> bool:
        """Whether each data set is a separate case: declared defects of a real engine refer to its batch size."""
        return self._state.options.real is not None

    def seeded(self, count: int) -> None:
        """Run *count* cases whose choices come from hashes: the same cases every time, independent of the rows."""
        for index in range(count):
            self._later(self._built(functools.partial(seeded_case, self._target, index, alone=self._alone)))
        self._run_waiting()

    def rows(self) -> None:
        """Run the spec's examples, this target's rows, and the extra cases."""
        reason = self.session.engine.supports(self._spec, self._target.scheme, self._target.platform)
        if reason is not None:
            self._recorder.miss(reason)
            self.left_out = reason
            pytest.skip(reason)
        for example in self._spec.examples:
            self._later(self._built(functools.partial(example_case, self._target, example)))
        for index, row in enumerate(covering_rows_of(self.session.all_targets(self._spec), self._target)):
            self._later(self._built(functools.partial(row_case, self._target, index, row, alone=self._alone)))
        # extreme cases by intent: their figures would hide what SQNR and errors are on usual data
        for several in EXTRA_CASES:
            for case in self._built(functools.partial(several, self._target)):
                self._later(case, figures=False)
        strong = PROFILES[self._state.options.profile].strong
        everything = self.session.all_targets(self._spec)
        for case in self._built(lambda: shared_cases(everything, self._target, strong=strong)):
            self._later(case, figures=False)
        self._run_waiting()
        self._reach_the_rest()

    def _built(self, make: Callable[[], T], *passed: type[Exception]) -> T:
        """Return the cases that *make* builds. If a spec or reference cannot give one, the item fails in one line."""
        try:
            return make()
        except passed:
            raise
        except FunctionError as err:
            problem = f"the reference raised {err}"
        except QuantizerError as err:
            problem = f"the spec generates a case that is not legal: {err} Bound its domains."
        except Exception as err:  # noqa: BLE001 - whatever a plugin's reference raises is its failure
            problem = f"the reference raised {type(err).__name__}: {err}"
        self._run_waiting()
        self._failure = problem.splitlines()[0]
        self._failed = f"{self._target.id}: {problem}"
        # a traceback would show only this module
        return pytest.fail(self._failed, pytrace=False)

    def _reach_the_rest(self) -> None:
        """Run a case for each bin that no row could reach together with its other bins."""
        for entry in sorted(wanted_coverage(self._spec, self._target.platform) - self._recorder.coverage):
            for chooser in single_bin_choices(self._target, entry):
                self.run(self._built(functools.partial(build_case, self._target, chooser)))
                if entry in self._recorder.coverage:
                    break

    def _later(self, case: Case, *, figures: bool = True) -> None:
        """Judge a case now, or together with the next ones if a real engine runs them."""
        self._waiting.append((case, figures))
        if self._state.options.real is None or len(self._waiting) >= AHEAD:
            self._run_waiting()

    def _run_waiting(self) -> None:
        """Judge the cases that wait, in their order."""
        waiting, self._waiting = self._waiting, []
        trials = [Trial(self._target, case, self.session.engine) for case, _ in waiting]
        ask_ahead(trials)
        for trial, (case, figures) in zip(trials, waiting, strict=True):
            self._judge(trial, case, figures=figures)

    def run(self, case: Case, *, figures: bool = True) -> None:
        """Judge one case. The item's first failure is shrunk, stored and described.

        *figures*: whether the case counts in the item's SQNR and error.
        """
        self._judge(Trial(self._target, case, self.session.engine), case, figures=figures)

    def _judge(self, trial: Trial, case: Case, *, figures: bool) -> None:
        # Hypothesis goes on drawing after a failure: the item keeps its first one, which is already shrunk
        if self._failed is not None:
            pytest.fail(self._failed, pytrace=False)
        # a case that ends the process of plugins is not run again, neither by other checks nor smaller
        before = deaths()
        several = judged(trial, self._schedule.checks(case))
        died = deaths() > before
        for one, verdicts in several:
            self._count(one, verdicts, figures=figures, died=died)

    def _count(self, trial: Trial, verdicts: list[Verdict], *, figures: bool, died: bool) -> None:
        """Add a case, or a part of a stack, to the record; fail the item where it fails."""
        case = trial.case
        failing = any(verdict.failing for verdict in verdicts)
        if failing and not died:
            trial, verdicts = self._by_every_check(case, trial, verdicts)
        # The record has the verdicts that the failure's text and its replay file have, and the coverage of what ran.
        smallest, found = self.smallest(case, verdicts, died=died) if failing else (trial, verdicts)
        self._recorder.add(trial, found, figures=figures)
        if failing:
            self._failed = self.explained(smallest, found, ran=not died)
            pytest.fail(self._failed, pytrace=False)
        if self.witness is None:
            self.witness = witness(trial, verdicts)

    def _by_every_check(self, case: Case, trial: Trial, verdicts: list[Verdict]) -> tuple[Trial, list[Verdict]]:
        """Return the verdicts of all checks on a failed case, or the earlier verdicts if it no longer fails."""
        anew = Trial(self._target, case, self.session.engine)
        found = judge(anew, self._state.options.checks)
        return (anew, found) if any(verdict.failing for verdict in found) else (trial, verdicts)

    def smallest(self, case: Case, verdicts: list[Verdict], *, died: bool) -> tuple[Trial, list[Verdict]]:
        """Return the smallest case that fails in the same way, and its verdicts.

        *died*: whether *case* ended the process that ran it. It is then not run again.
        """
        engine = self.session.engine
        first = next(v for v in verdicts if v.failing)

        def fails(candidate: Case) -> bool:
            """Return whether the same check fails in the same way: an exception is no wrong code."""
            found = judge(Trial(self._target, candidate, engine), (first.check,))
            return any(v.failing and (v.worst is None) == (first.worst is None) for v in found)

        if not died:
            trial = Trial(self._target, shrink(self._target, case, fails), engine)
            found = judge(trial, self._state.options.checks)
            # a function that keeps state may pass now: then the case and its verdicts stay as they were
            if any(verdict.failing for verdict in found):
                return trial, found
        return Trial(self._target, case, engine), verdicts

    def explained(self, trial: Trial, verdicts: list[Verdict], *, ran: bool) -> str:
        """Store a failing case and return the text of its failure; *ran*: its process did not end."""
        options, case = self._state.options, trial.case
        path = replay_path(options.reports / "failures", self._target.id, case)
        self._failure = f"{headline(next(v for v in verdicts if v.failing))} [{case.digest}]"
        text = describe(
            self._target.id,
            case,
            trial,
            verdicts,
            rerun=self._state.rerun,
            replay=f"quantizer case replay {options.shown(path)}{self._own_spec()}{options.arguments}",
        )
        write_replay(path, self._target.id, trial, verdicts, text, ran=ran)
        return text

    def _own_spec(self) -> str:
        """Return the option that names the operator's spec file for a command; empty if another option already does."""
        options, path = self._state.options, self.session.library.paths[self._spec.op]
        return f" --op-specs={options.shown(path)}" if named_by_path_alone(path, options) else ""

    def once(self) -> None:
        """Run an item that has no generated cases."""
        stored = StoredCases(self._state, self.session)
        found = {
            "spec": lambda: spec_problems(self.session, self._spec),
            "golden": stored.goldens,
            "reject": self._reject,
            "regressions": stored.regressions,
        }[self._state.kind]()
        self.changes = stored.changes
        self._recorder.compared(self._state.kind, found)
        if found.problems:
            self._failure = found.problems[0].splitlines()[0]
            pytest.fail("\n".join(f"{self._state.name}: {problem}" for problem in found.problems), pytrace=False)

    def _reject(self) -> Findings:
        targets = self.session.targets(self._spec)
        return reject_problems(targets[0], self.session.engine) if targets else Findings()


def _engine_label(engine: Engine, platform: str) -> str:
    """Return the name and version of the implementation that computes the items of *platform*."""
    return f"{engine.identity(platform)} {engine.version}" if engine.version and platform else engine.name
