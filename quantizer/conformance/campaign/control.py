"""Runs a campaign: units go to any executor, results into the journal, and failures are shrunk as they come."""

from __future__ import annotations

import concurrent.futures as cf
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quantizer.conformance.campaign.journal import Journal
from quantizer.conformance.campaign.plan import Plan, Unit
from quantizer.conformance.campaign.record import Totals
from quantizer.conformance.campaign.work import lost_unit, run_unit, shrink_case
from quantizer.core.files import replace_files

AHEAD = 3
"""The number of units that wait for each worker."""
ATTEMPTS = 3
"""The number of attempts for a unit whose worker dies."""


@dataclass(frozen=True)
class _Shrink:
    """The task of shrinking the earliest case of a failure."""

    cause: str
    unit: int
    check: str
    case: str


Task = Unit | _Shrink
Start = Callable[[], cf.Executor]
"""Makes an executor. It is called again after the last executor broke."""


def run_campaign(
    plan: Plan,
    journal: Journal,
    start: Start,
    workers: int,
    *,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Totals:
    """Return the results of the campaign, including the journal's earlier ones.

    *seconds*: no unit is started after this time. *progress*: called whenever a unit ends, with the numbers of examples
    and causes so far.
    """
    totals = Totals()
    for entry in journal.entries():
        totals.add(entry)
    show = progress or _silent
    show(totals.examples, len(totals.failures))
    run = _Run(plan, journal, totals, start, show)
    run.until_done(workers * AHEAD, None if seconds is None else time.monotonic() + seconds)
    return totals


def _silent(examples: int, failures: int) -> None:
    """Show nothing."""
    del examples, failures


class _Run:
    """The running tasks of one campaign."""

    def __init__(
        self, plan: Plan, journal: Journal, totals: Totals, start: Start, progress: Callable[[int, int], None]
    ) -> None:
        self._plan, self._text, self._journal, self._totals = plan, plan.to_json(), journal, totals
        self._start, self._progress = start, progress
        self._executor = start()
        self._under_way: dict[cf.Future[str], Task] = {}
        self._attempts: dict[Task, int] = {}
        self._again: list[Task] = []
        self._suspects: list[Task] = []

    def until_done(self, ahead: int, deadline: float | None) -> None:
        """Keep *ahead* tasks running until none is left; start no unit after *deadline*."""
        waiting = self._waiting(deadline)
        try:
            while True:
                # suspects run alone: if the executor breaks again, the task that broke it is known
                while len(self._under_way) < (1 if self._suspects else ahead) and (task := self._next(waiting)):
                    self._submit(task)
                if not self._under_way:
                    return
                done, _ = cf.wait(self._under_way, return_when=cf.FIRST_COMPLETED)
                for future in done:
                    self._take(future)
        finally:
            self._shut_down()

    def _waiting(self, deadline: float | None) -> Iterator[Unit]:
        for unit in self._plan.units():
            if deadline is not None and time.monotonic() >= deadline:
                return
            if unit.number not in self._totals.units:
                yield unit

    def _next(self, waiting: Iterator[Unit]) -> Task | None:
        if self._suspects:
            return self._suspects[-1]
        # units that failed go before new ones, so that the journal has no holes for long
        if self._again:
            return self._again.pop()
        busy = {task.cause for task in self._under_way.values() if isinstance(task, _Shrink)}
        for cause, failure in self._totals.failures.items():
            if not failure.is_shrunk and cause not in busy:
                return _Shrink(cause, failure.unit, failure.check, failure.case)
        return next(waiting, None)

    def _submit(self, task: Task) -> None:
        try:
            if isinstance(task, Unit):
                future = self._executor.submit(run_unit, self._text, task.number, task.target, task.examples)
            else:
                future = self._executor.submit(shrink_case, self._text, task.case, task.check)
        except cf.BrokenExecutor:
            self._broken([task])
        else:
            self._under_way[future] = task

    def _take(self, future: cf.Future[str]) -> None:
        # None: the future belonged to an executor that broke meanwhile
        task = self._under_way.pop(future, None)
        if task is None:
            return
        try:
            result = future.result()
        except cf.BrokenExecutor as err:
            # it ran alone, so it broke the executor itself
            if task in self._suspects:
                self._failed(task, err)
            self._broken([task])
            return
        except Exception as err:  # noqa: BLE001 - a worker that dies on a cluster shows as any of many errors
            self._failed(task, err)
            self._again.append(task)
            self._again = [left for left in self._again if self._attempts.get(left, 0) < ATTEMPTS]
            return
        if isinstance(task, _Shrink):
            result = json.dumps({"shrunk": task.cause, "of": task.unit, "case": result}, sort_keys=True)
        self._keep(task, result)

    def _keep(self, task: Task, line: str) -> None:
        self._suspects = [left for left in self._suspects if left != task]
        self._journal.append(line)
        self._totals.add(json.loads(line))
        self._progress(self._totals.examples, len(self._totals.failures))

    def _failed(self, task: Task, err: Exception) -> None:
        """Count a failed attempt. After the last one, the task is recorded as a failure."""
        self._attempts[task] = self._attempts.get(task, 0) + 1
        if self._attempts[task] < ATTEMPTS:
            return
        if isinstance(task, Unit):
            why = f"the process that ran it ended {ATTEMPTS} times: {type(err).__name__}"
            self._keep(task, lost_unit(task.number, task.target, why))
        else:
            self._keep(task, json.dumps({"shrunk": task.cause, "of": task.unit, "case": task.case}, sort_keys=True))

    def _broken(self, tasks: list[Task]) -> None:
        """Replace a broken executor. The unfinished tasks then run one at a time, to find the one that broke it."""
        suspects = [*tasks, *self._under_way.values(), *self._suspects]
        done = {task for task, count in self._attempts.items() if count >= ATTEMPTS}
        self._suspects = [task for task in dict.fromkeys(suspects) if task not in done]
        self._shut_down()
        self._executor = self._start()

    def _shut_down(self) -> None:
        for future in self._under_way:
            future.cancel()
        self._under_way.clear()
        self._executor.shutdown(wait=False)


def store_failures(totals: Totals, folder: Path) -> list[Path]:
    """Write a replay file with the smallest case of every cause of failure; return the paths."""
    written = []
    for failure in (totals.failures[cause] for cause in sorted(totals.failures) if totals.failures[cause].case):
        case = json.loads(failure.smallest or failure.case)
        item = f"{case['op']}-{case['scheme']}-{case['platform']}"
        content = {"case": case, "item": item, "checks": [failure.check], "finding": failure.finding}
        path = folder / f"{item}-{failure.check}-{failure.unit}.json"
        replace_files({path: json.dumps(content, indent=1, sort_keys=True) + "\n"})
        written.append(path)
    return written
