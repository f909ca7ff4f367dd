"""Runs the gate's cases and checks under each reported bug, to see which bugs the gate finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass

from quantizer.conformance.faults.cases import explicit_cases
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.kills import anew
from quantizer.conformance.faults.planting import Planting
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.case_classes.mixed_sizes import seeded_choices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.judging.schedule import SCHEDULE, Schedule
from quantizer.conformance.real.bugs import bug, twin
from quantizer.conformance.real.facts import facts, holds
from quantizer.conformance.real.reports import Report
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.profiles import PROFILES
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.errors import QuantizerError
from quantizer.core.verdict import CHECKS
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.runtime.isolation.plugins import judged

TWINS = 3
"""A twin must pass on this many of the cases that meet the condition."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one report in one operator."""

    ref: str
    op: str
    met: int
    """The number of cases that met its condition, up to the one in which a check found it."""
    changed: int
    """The number of these cases in which it changed the function's results within one run."""
    check: str = ""
    """The check that found it first; empty if none did."""
    target: str = ""
    twin: str = ""
    """The failure of a check on the correct twin, a false alarm; empty if all checks pass."""


@dataclass(frozen=True)
class Job:
    """One operator with the reports that are planted in it."""

    options: Options
    environment: Mapping[str, str]
    op: str
    reports: tuple[Report, ...]


def run(job: Job) -> list[Outcome]:
    """Plant every report of one operator in a separate session."""
    plugins = judged(job.options.plugins, dict(job.environment))
    session = open_session(job.options, tuple(folder for plugin in plugins for folder in plugin.specs))
    return planted(session, job.op, job.reports)


def all_of(jobs: Sequence[Job], executor: Executor) -> Iterator[list[Outcome]]:
    """Yield the outcomes of the jobs as they finish."""
    for done in as_completed([executor.submit(run, job) for job in jobs]):
        yield done.result()


def planted(session: Session, op: str, reports: Sequence[Report]) -> list[Outcome]:
    """Return the outcome of each report: the gate's cases that meet its condition are judged until a check fails."""
    waiting = {report.ref: _Open(session, op, report) for report in reports}
    everything = list(waiting.values())
    schedules: dict[str, Schedule] = {}
    for target, case in gate_cases(session, op):
        if not waiting:
            break
        schedule = schedules.setdefault(target.id, Schedule(target, CHECKS, SCHEDULE))
        checks = schedule.checks(case)
        trial = Trial(target, case, session.engine)
        known = _known(trial)
        if known is None:
            continue
        alarms: set[str] | None = None
        # one pass over the cases serves all reports: a case is built, and judged without a bug, once
        for ref, one in list(waiting.items()):
            if not holds(one.report.when, known):
                continue
            # judged without a bug only if some report concerns the case
            if alarms is None:
                alarms = {verdict.check for verdict in judge(trial, checks) if verdict.failing}
            one.met += 1
            one.judged(trial, [name for name in checks if name not in alarms])
            if one.check:
                waiting.pop(ref)
    return [one.outcome(op) for one in everything]


def gate_cases(session: Session, op: str) -> Iterator[tuple[Target, Case]]:
    """Yield the gate's cases of *op* without repetitions: explicit cases, then cases chosen by hashes."""
    spec = session.library.spec(op)
    yield from explicit_cases(session, spec)
    for target in session.all_targets(spec):
        for index in range(PROFILES["gate"].examples):
            yield target, build_case(target, seeded_choices(target, index))


class _Open:
    """A report that no check has found yet."""

    def __init__(self, session: Session, op: str, report: Report) -> None:
        spec, places = session.library.spec(op), tuple(session.library.platforms)
        self.report = report
        self._bug, self._twin = bug(report, spec), twin(report, spec)
        self._planted, self._beside = Planting(self._bug, spec, places), Planting(self._twin, spec, places)
        self.met, self.changed, self.check, self.target, self.alarm = 0, 0, "", "", ""

    def outcome(self, op: str) -> Outcome:
        """Return how often the bug was met and changed codes, and which check found it, if any."""
        return Outcome(self.report.ref, op, self.met, self.changed, self.check, self.target, self.alarm)

    def judged(self, trial: Trial, checks: Sequence[str]) -> None:
        """Judge the bug, and on the first cases its twin."""
        # a twin shows a check that rejects correct results under the same condition
        if self.met <= TWINS:
            self.alarm = self.alarm or _first(trial, self._twin, self._beside, checks)
        self.check = _first(trial, self._bug, self._planted, checks)
        self.target = trial.target.id if self.check else ""
        self.changed += bool(self.check) or _changes(trial, self._bug, self._planted)


def _first(trial: Trial, fault: Fault, planting: Planting, checks: Sequence[str]) -> str:
    """Return the first check that fails while the fault is planted; empty if none fails."""
    with planting:
        return next((v.check for v in judge(anew(trial, fault.kind), checks) if v.failing), "")


def _changes(trial: Trial, fault: Fault, planting: Planting) -> bool:
    """Return whether the fault changes provided numbers or results. A fault that raises counts as a change."""
    try:
        with planting:
            other = anew(trial, fault.kind)
            return not (
                bitwise_equal(trial.parameters, other.parameters) and bitwise_equal(trial.outcome, other.outcome)
            )
    except Exception:  # noqa: BLE001 - a fault that makes a function raise has an effect
        return True


def _known(trial: Trial) -> dict[str, object] | None:
    if trial.unsupported is not None:
        return None
    try:
        provided = trial.parameters
        return facts(trial.spec, trial.case.shapes, trial.case.attrs, provided, trial.case.ranges)
    except QuantizerError:
        return None
