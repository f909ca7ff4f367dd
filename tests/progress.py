"""Says on a terminal, while tests run, what fails and about how long the rest takes; silent in a pipe and in workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

EVERY = 15.0
"""Seconds from one estimate to the next."""
KNOWN = "tests/seconds"
"""Where pytest's cache keeps the mean seconds of a test of each file."""


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Estimate:
    """The remaining time: each test counts as the mean of its file in the last run, or of all files."""

    def __init__(self, known: Mapping[str, float]) -> None:
        self._known = dict(known)
        self._mean = sum(known.values()) / len(known) if known else 1.0
        self._total: Counter[str] = Counter()
        self._done: Counter[str] = Counter()

    def collected(self, nodeids: Sequence[str]) -> None:
        """Take the tests of the run; workers of xdist all collect the same."""
        self._total = Counter(map(_file, nodeids))

    def finished(self, nodeid: str) -> None:
        """Count a test that has run."""
        self._done[_file(nodeid)] += 1

    @property
    def counts(self) -> tuple[int, int]:
        """Tests that have run, and all."""
        return self._done.total(), self._total.total()

    def left(self, elapsed: float) -> float | None:
        """Return the seconds left after *elapsed*, at the pace so far; None while nothing has run."""
        done, total = self._weight(self._done), self._weight(self._total)
        return elapsed * max(total - done, 0.0) / done if done else None

    def _weight(self, tests: Counter[str]) -> float:
        return sum(count * self._known.get(file, self._mean) for file, count in tests.items())


def minutes(seconds: float) -> str:
    """Return *seconds* as people say them: 40 s, 3 min 20 s."""
    whole = round(seconds / 10) * 10
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


class Progress:
    """The plugin: hears of every test that ends, from workers too."""

    def __init__(
        self, say: Callable[[str], None], known: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._estimate = Estimate(known)
        self._start = self._last = clock()
        self._seconds: dict[str, list[float]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take the tests of a run without workers."""
        if session.items:
            self._begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Take the tests of a run on workers."""
        self._begin(ids)

    def _begin(self, nodeids: Sequence[str]) -> None:
        self._estimate.collected(nodeids)
        self._start = self._last = self._clock()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a test that fails at once, with the last line of why."""
        self._seconds.setdefault(_file(report.nodeid), []).append(report.duration)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = f" - {crash.message.splitlines()[0]}" if crash is not None and crash.message else ""
            self._say(f"FAILED {report.nodeid}{reason}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count the test; say what is left from time to time."""
        self._estimate.finished(nodeid)
        now = self._clock()
        if now - self._last >= EVERY and (left := self._estimate.left(now - self._start)) is not None:
            self._last = now
            done, total = self._estimate.counts
            self._say(f"{done} of {total} tests, about {minutes(left)} left")

    def means(self) -> dict[str, float]:
        """Return the mean seconds of a test of each file; set-up, call and teardown together."""
        done = self._estimate._done
        return {file: sum(seconds) / done[file] for file, seconds in self._seconds.items() if done[file]}
