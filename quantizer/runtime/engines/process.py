"""The process in which a real system runs: started on demand, killed where it hangs, replaced where it crashes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from quantizer.core.errors import EngineError, FormatError
from quantizer.runtime.engines.child import Child, DiedError, Limits
from quantizer.runtime.engines.frames import Array, Job, Reply

PATIENCE = 60.0
"""Seconds after which a job counts as hung."""
REMEMBERED = 256
ROOT = Path(__file__).resolve().parents[3]


def environment(pins: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a worker: ours, this package importable, one thread; *pins* over all of it."""
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
    return {**os.environ, **(pins or {}), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


class Worker:
    """One worker process at a time; jobs go in one by one. *pins* are set in its environment, over what is set in ours."""

    def __init__(self, module: str, patience: float = PATIENCE, pins: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._limits = Limits(patience=patience)
        self._pins = dict(pins or {})
        self._child: Child | None = None
        self._fatal: dict[str, str] = {}

    def run(self, job: Job) -> tuple[Array, ...]:
        """Return the outputs of *job*; EngineError where the system raised, crashed or hung.

        A job that killed a process is not run again: it fails as it did.
        """
        digest = _digest(job)
        if digest in self._fatal:
            raise EngineError(self._fatal[digest])
        try:
            if self._child is None:
                self._start()
            assert self._child is not None
            reply = Reply.of(self._child.ask(job.frame()))
        except DiedError as err:
            self.close()
            self._fail(digest, f"the engine {err}")
        except FormatError as err:
            self.close()
            self._fail(digest, f"the engine answered with {err}")
        if reply.error:
            raise EngineError(f"the engine raised {reply.error.strip().splitlines()[0]}")
        return reply.outputs

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _start(self) -> None:
        """Start a process, and wait for the empty reply by which it says that its imports are done."""
        command = [sys.executable, "-P", "-m", f"{__package__}.workers", self._module]
        self._child = Child(command, environment(self._pins), self._limits)
        try:
            self._child.greeting()
        except DiedError as err:
            self.close()
            raise EngineError(f"the engine did not start: it {err}") from None

    def _fail(self, digest: str, why: str) -> NoReturn:
        if len(self._fatal) >= REMEMBERED:
            self._fatal.clear()
        self._fatal[digest] = why
        raise EngineError(why)


def _digest(job: Job) -> str:
    found = hashlib.sha256(job.model)
    for name, values in job.feeds.items():
        found.update(name.encode() + values.tobytes())
    found.update(repr(sorted(job.options.items())).encode())
    return found.hexdigest()
