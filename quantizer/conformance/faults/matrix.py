"""The kill matrix: the result of every fault in every operator that it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, field

from quantizer.conformance.faults.cases import corpus, gate_cases, number_of_cases
from quantizer.conformance.faults.catalogue import catalogue
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.kills import Kill, Subject, anew, differs, given
from quantizer.conformance.faults.places import KILLED, STALE, SURVIVES, UNDECIDED, WITHOUT, Place, Places
from quantizer.conformance.faults.planting import Planting
from quantizer.conformance.faults.policies import Share, shares
from quantizer.conformance.faults.without_effect import EVERYWHERE, Triple
from quantizer.conformance.judging.schedule import SCHEDULE
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.runtime.isolation.plugins import judged


@dataclass(frozen=True)
class Job:
    """The request to examine one operator, as plain data for a worker process."""

    options: Options
    environment: Mapping[str, str]
    op: str
    faults: tuple[str, ...]
    listed: Mapping[Triple, str]
    """(fault, operator, platform) -> why it has no effect there."""
    corpus: int = 0
    """The number of generated cases for pairs that have no effect in the gate's cases; 0: run none."""
    peers: bool = False
    """Whether the faults are also judged by other tools' policies."""
    schedule: bool = False
    """Whether each case is judged only by the checks that the gate profile runs on it."""
    places: bool = False
    """Whether each fault is examined separately on each platform and under each arithmetic."""


@dataclass(frozen=True)
class Row:
    """The outcome of one fault in one operator."""

    fault: str
    place: str
    op: str
    outcome: str
    cases: int
    """The number of cases of the gate."""
    kills: tuple[Kill, ...] = ()
    reason: str = ""
    """Why a listed pair has no effect, or the case of the corpus in which it has one."""
    peers: Mapping[str, Share] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The rows of one operator, and the alarms on the unchanged operator as (target, check, case).

    Every case that kills a fault is also judged without it.
    """

    op: str
    cases: int
    rows: tuple[Row, ...]
    alarms: tuple[tuple[str, str, str], ...]
    places: tuple[Place, ...] = ()


def matrix(jobs: Sequence[Job], executor: Executor) -> Iterator[Result]:
    """Yield the results of the jobs as they finish."""
    waiting = [executor.submit(run, job) for job in jobs]
    for done in as_completed(waiting):
        yield done.result()


def run(job: Job) -> Result:
    """Examine one operator in a separate session."""
    plugins = judged(job.options.plugins, dict(job.environment))
    session = open_session(job.options, tuple(folder for plugin in plugins for folder in plugin.specs))
    return examined(session, job)


def examined(session: Session, job: Job) -> Result:
    """Plant every fault in the gate's cases of one operator, and try those without effect there on the corpus."""
    subject = Subject(session, job.op, gate_cases(session, job.op), SCHEDULE if job.schedule else None)
    faults = [fault for fault in catalogue() if fault.id in job.faults]
    count = number_of_cases(session, job.op)
    if job.places:
        known = Places(subject)
        found = tuple(place for fault in faults for place in known.examined(fault, job.listed))
        return Result(job.op, count, (), _alarms(subject), found)
    rows = {fault.id: _row(subject, fault, job, count) for fault in faults}
    open_questions = [fault for fault in faults if rows[fault.id].outcome in (UNDECIDED, WITHOUT)]
    if job.corpus and open_questions:
        shown = effects(session, job.op, open_questions, job.corpus)
        for fault in open_questions:
            rows[fault.id] = _decided(rows[fault.id], shown.get(fault.id), job.corpus)
    return Result(job.op, count, tuple(rows.values()), _alarms(subject))


def _alarms(subject: Subject) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (subject.trials[index].target.id, check, subject.trials[index].case.to_json())
        for index, checks in sorted(subject.alarms.items())
        for check in checks
    )


def _row(subject: Subject, fault: Fault, job: Job, count: int) -> Row:
    listed = job.listed.get((fault.id, job.op, EVERYWHERE))
    if listed is not None:
        # a listed pair is not judged, but its reason must still be true
        outcome = STALE if subject.changes(fault) else WITHOUT
        return Row(fault.id, fault.place, job.op, outcome, count, reason=listed)
    found = subject.examine(fault)
    if not found.effect:
        return Row(fault.id, fault.place, job.op, UNDECIDED, count)
    peers = shares(subject.compared(fault)) if job.peers else {}
    outcome = KILLED if found.kills else SURVIVES
    return Row(fault.id, fault.place, job.op, outcome, count, tuple(found.kills.values()), peers=peers)


def _decided(row: Row, shown: Case | None, size: int) -> Row:
    if shown is None:
        reason = row.reason or f"no effect in {size} generated cases"
        return Row(row.fault, row.place, row.op, WITHOUT, row.cases, reason=reason)
    return Row(row.fault, row.place, row.op, SURVIVES, row.cases, reason=shown.to_json())


def effects(session: Session, op: str, faults: Sequence[Fault], size: int) -> Mapping[str, Case]:
    """Return, for each fault that has an effect, the first case of the corpus that it changes."""
    places = tuple(session.library.platforms)
    spec = session.library.spec(op)
    waiting = {fault.id: (fault, Planting(fault, spec, places)) for fault in faults}
    found: dict[str, Case] = {}
    for target, case in corpus(session, spec, size):
        trial = Trial(target, case, session.engine)
        # the unchanged functions run once per case, whatever the number of faults
        before = {kind: list(given(trial, kind)) for kind in {fault.kind for fault, _ in waiting.values()}}
        for name, (fault, planting) in list(waiting.items()):
            with planting:
                if differs(before[fault.kind], given(anew(trial, fault.kind), fault.kind)):
                    found[name] = case
                    waiting.pop(name)
        # the corpus is built case by case: most faults need only a few
        if not waiting:
            break
    return found
