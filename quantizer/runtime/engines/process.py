"""The process of a real system. It is started on demand, killed if it hangs, and replaced if it crashes."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from quantizer.core.errors import EngineError, FormatError, RefusedError
from quantizer.runtime.engines.child import Child, DiedError, Limits, StoppedError
from quantizer.runtime.engines.frames import Array, Job, Reply, question, replies
from quantizer.runtime.engines.greeting import Greeting, greeting_of

PATIENCE = 60.0
"""The number of seconds after which a job counts as hung."""
REMEMBERED = 256
MOST_BYTES = 1 << 26
"""The largest number of bytes of models and inputs in one message of several jobs."""
ROOT = Path(__file__).resolve().parents[3]
SERVE = Path(__file__).with_name("serve.py")
"""The script that a worker's interpreter runs. It needs numpy but not this package."""


MARKS = tuple(
    (
        "ACTIONS_ AGENT_ APPVEYOR BAMBOO_ BITBUCKET_ BITRISE_ BUDDY_ BUILDKITE CIRCLE CIRRUS_ CI_ CODEBUILD_ "
        "COVERAGE_ COV_CORE_ DRONE EXECUTOR_ GITEA_ GITHUB_ GITLAB_ GO_PIPELINE_ HARNESS_ HEROKU_TEST_ HUDSON_ "
        "HYPOTHESIS_ JENKINS_ NETLIFY NOX_ PYTEST_ RUNNER_ SEMAPHORE STRIDER SYSTEM_TEAM TEAMCITY_ TOX_ TRAVIS "
        "WERCKER WOODPECKER"
    ).split()
)
"""Prefixes of environment variables that reveal a test or a CI system."""
MARK_NAMES = ("BUILD_ID", "BUILD_NUMBER", "BUILD_URL", "CI", "CONTINUOUS_INTEGRATION", "JOB_NAME", "TF_BUILD")
"""Other such variables."""


def environment(pins: Mapping[str, str] | None = None, *, ours: bool = True) -> dict[str, str]:
    """Return the environment of a worker: one thread, this package importable if it is *ours*; *pins* on top.

    It does not reveal a test, a CI job or the process of the test, so that the code under test runs as anywhere else.
    """
    own = str(ROOT) if ours else ""
    known = {**os.environ, **(pins or {})}.items()
    given = {name: text for name, text in known if not name.startswith(MARKS) and name not in MARK_NAMES}
    path = os.pathsep.join(part for part in (own, os.environ.get("PYTHONPATH")) if part)
    # last, so that nobody's environment gives a worker several threads
    return {**given, **({"PYTHONPATH": path} if path else {}), "OMP_NUM_THREADS": "1"}


def serving(worker: str, python: str = "") -> tuple[str, ...]:
    """Return the command that serves *worker*, a file or a module, with *python*; empty: the current interpreter."""
    return (python or sys.executable, str(SERVE), worker)


class OverLimitError(EngineError):
    """A job took more time or memory than it may."""


class Worker:
    """One worker process at a time. *pins* are set in its environment and override ours.

    worker: a module for the current interpreter; command: replaces it; expected: the greeting that each process must
    send, by default the first process's greeting.
    """

    def __init__(
        self,
        worker: str,
        patience: float = PATIENCE,
        pins: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        expected: Greeting | None = None,
    ) -> None:
        self._command = tuple(command) or serving(worker)
        self._ours = not command or command[0] == sys.executable
        self._limits = Limits(patience=patience)
        self._pins = dict(pins or {})
        self._child: Child | None = None
        self._fatal: dict[str, str] = {}
        self._expected = expected
        self._left = 0
        OPEN.add(self)

    def run(self, job: Job) -> tuple[Array, ...]:
        """Return the outputs of *job*; EngineError if the system raised, crashed or hung, RefusedError if it refused.

        A job that killed a process is not run again: the same error is raised again.
        """
        digest = _digest(job)
        if digest in self._fatal:
            raise EngineError(self._fatal[digest])
        try:
            (reply,) = self._asked([job])
        except DiedError as err:
            self.close()
            self._fail(digest, f"the engine {err}", OverLimitError if isinstance(err, StoppedError) else EngineError)
        except FormatError as err:
            self.close()
            self._fail(digest, f"the engine answered with {err}")
        return _outputs(reply)

    def run_each(self, jobs: Sequence[Job]) -> list[Callable[[], tuple[Array, ...]]] | None:
        """Ask for *jobs* in one message; return for each a function that gives its outputs, or raises, as `run` does.

        Returns None if the process does not start, or the jobs are too large for one message: then each must run alone.
        If the process ended or its replies cannot be read, each job runs again alone.
        """
        size = sum(len(job.model) + sum(values.nbytes for values in job.feeds.values()) for job in jobs)
        # a job that ended a process before would end it for all
        if size > MOST_BYTES or (self._fatal and not self._fatal.keys().isdisjoint(map(_digest, jobs))):
            return None
        try:
            return [functools.partial(_outputs, reply) for reply in self._asked(jobs)]
        except EngineError:
            return None
        except DiedError as err:
            self.close()
            return self._run_apart(jobs, f"{err}", slow=isinstance(err, StoppedError))
        except FormatError as err:
            self.close()
            return self._run_apart(jobs, f"answered with {err}", slow=False)

    def greeting(self) -> Greeting:
        """Return the worker's greeting; EngineError if it does not start or sends nothing readable."""
        child = self._started()
        try:
            return greeting_of(child.greeting().header)
        except DiedError as err:
            raise EngineError(f"the engine did not start: it {err}") from None
        except FormatError as err:
            raise EngineError(f"the engine did not start: it answered with {err}") from None
        finally:
            child.close()

    def close(self) -> int:
        """End the process; return how many processes it and its predecessors would have left running."""
        child, self._child = self._child, None
        if child is not None:
            self._left += child.close()
        return self._left

    def _run_apart(self, jobs: Sequence[Job], why: str, *, slow: bool) -> list[Callable[[], tuple[Array, ...]]]:
        """Run *jobs* one by one after a message with all of them ended the process; *why* says how it ended.

        If no single job ends the process, it is unknown which one did, and all of them fail. Exception: a *slow*
        message may have been too long for one answer. It was, if the single jobs together take longer than one answer
        may.
        """
        began = time.monotonic()
        found = [self._settled(job) for job in jobs]
        took = time.monotonic() - began
        digests = [*map(_digest, jobs)]
        if not self._fatal.keys().isdisjoint(digests) or (slow and took > self._limits.patience):
            return found
        text = f"the engine {why}, in a message of {len(jobs)} jobs, none of which does so alone"
        return [functools.partial(self._fail, digest, text) for digest in digests]

    def _settled(self, job: Job) -> Callable[[], tuple[Array, ...]]:
        """Run *job* now; return a function that gives its outputs, or raises."""
        try:
            outputs = self.run(job)
        except (EngineError, RefusedError) as err:
            return functools.partial(_raised, err)
        return lambda: outputs

    def _asked(self, jobs: Sequence[Job]) -> list[Reply]:
        if self._child is None:
            self._start()
        assert self._child is not None
        return replies(self._child.ask(question(jobs)), jobs)

    def _started(self) -> Child:
        try:
            return Child(self._command, environment(self._pins, ours=self._ours), self._limits)
        except OSError as err:
            raise EngineError(f"the engine did not start: {self._command[0]}: {err.strerror}") from None

    def _start(self) -> None:
        """Start a process, and wait for its greeting, which it sends after its imports."""
        self._child = self._started()
        try:
            said = greeting_of(self._child.greeting().header)
        except DiedError as err:
            self.close()
            raise EngineError(f"the engine did not start: it {err}") from None
        except FormatError as err:
            self.close()
            raise EngineError(f"the engine did not start: it answered with {err}") from None
        # later processes must be the same system as the first
        self._expected = self._expected or said
        if other := said.differs(self._expected):
            self.close()
            raise EngineError(f"the engine's greeting has changed: {other}")

    def _fail(self, digest: str, why: str, kind: type[EngineError] = EngineError) -> NoReturn:
        if len(self._fatal) >= REMEMBERED:
            # a bound on memory: a forgotten job is only run again
            self._fatal.clear()
        self._fatal[digest] = why
        raise kind(why)


# weak, so that it keeps no worker alive
OPEN: weakref.WeakSet[Worker] = weakref.WeakSet()
"""The workers that this process has started."""


def close_all() -> int:
    """End every worker's process; return how many processes they would have left behind."""
    return sum(worker.close() for worker in [*OPEN])


@functools.cache
def greeted(command: tuple[str, ...]) -> Greeting:
    """Return the greeting of the worker that *command* starts; EngineError if it does not start. Asked once."""
    return Worker("", command=command).greeting()


def _raised(err: Exception) -> NoReturn:
    raise err


def _outputs(reply: Reply) -> tuple[Array, ...]:
    if reply.refused:
        raise RefusedError(f"the engine refused: {reply.refused.strip().splitlines()[0]}")
    if reply.wrong:
        raise EngineError(f"the engine answered with {reply.wrong}")
    if reply.error:
        raise EngineError(f"the engine raised {reply.error.strip().splitlines()[0]}")
    return reply.outputs


def _digest(job: Job) -> str:
    found = hashlib.sha256(job.model)
    for name, values in job.feeds.items():
        found.update(name.encode() + values.tobytes())
    found.update(repr(sorted(job.options.items())).encode())
    return found.hexdigest()
