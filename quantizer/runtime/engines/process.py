"""The process in which a real system runs: started on demand, killed where it hangs, replaced where it crashes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, BinaryIO, NoReturn, cast

from quantizer.core.errors import EngineError
from quantizer.runtime.engines.frames import Array, Job, Reply, receive_reply, send_job

PATIENCE = 60.0
"""Seconds after which a job counts as hung."""
STARTING = 300.0
"""Seconds that a worker may take for its imports, on a machine that is busy."""
SAID = 300
"""Characters of the error stream that a crash is reported with."""
REMEMBERED = 256
ROOT = Path(__file__).resolve().parents[3]


class Worker:
    """One worker process at a time; jobs go in one by one. *pins* are set in its environment, over what is set in ours."""

    def __init__(self, module: str, patience: float = PATIENCE, pins: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._patience = patience
        self._pins = dict(pins or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.Queue[Reply | None] = queue.Queue()
        self._log: IO[bytes] | None = None
        self._ended: Callable[[], object] | None = None
        self._fatal: dict[str, str] = {}
        self._ready = False

    def run(self, job: Job) -> tuple[Array, ...]:
        """Return the outputs of *job*; EngineError where the system raised, crashed or hung.

        A job that killed a process is not run again: it fails as it did.
        """
        digest = _digest(job)
        if digest in self._fatal:
            raise EngineError(self._fatal[digest])
        process = self._running()
        try:
            if not self._ready:
                self._greeted(process)
            send_job(cast("BinaryIO", process.stdin), job)
            reply = self._replies.get(timeout=self._patience)
        except queue.Empty:
            self.close()
            self._fail(digest, f"the engine did not answer within {self._patience:g} s")
        except OSError:
            reply = None
        if reply is None:
            self._fail(digest, self._obituary(process))
        if reply.error:
            raise EngineError(f"the engine raised {reply.error.strip().splitlines()[0]}")
        return reply.outputs

    def close(self) -> None:
        """End the process."""
        if self._ended is not None:
            self._ended()
        self._process, self._log, self._ended, self._replies = None, None, None, queue.Queue()
        self._ready = False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
            command = [sys.executable, "-m", f"{__package__}.workers", self._module]
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                env={**os.environ, **self._pins, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            self._ended = weakref.finalize(self, _end, self._process, self._log)
            reader = threading.Thread(target=_read, args=(self._process.stdout, self._replies), daemon=True)
            reader.start()
        return self._process

    def _greeted(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the empty reply by which a worker says that its imports are done."""
        try:
            reply = self._replies.get(timeout=STARTING)
        except queue.Empty:
            self.close()
            raise EngineError(f"the engine did not start within {STARTING:g} s") from None
        if reply is None:
            raise EngineError(self._obituary(process))
        self._ready = True

    def _obituary(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        said = ""
        if self._log is not None:
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            said = f": {lines[-1][:SAID]}" if lines else ""
        self.close()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"the engine {how}{said}"

    def _fail(self, digest: str, why: str) -> NoReturn:
        if len(self._fatal) >= REMEMBERED:
            self._fatal.clear()
        self._fatal[digest] = why
        raise EngineError(why)


def _read(stream: BinaryIO, replies: queue.Queue[Reply | None]) -> None:
    """Hand on every reply, then None when the stream ends."""
    try:
        while (reply := receive_reply(stream)) is not None:
            replies.put(reply)
    except (OSError, ValueError):
        pass
    stream.close()
    replies.put(None)


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, log):
        with contextlib.suppress(OSError):
            cast("IO[bytes]", stream).close()


def _digest(job: Job) -> str:
    found = hashlib.sha256(job.model)
    for name, values in job.feeds.items():
        found.update(name.encode() + values.tobytes())
    found.update(repr(sorted(job.options.items())).encode())
    return found.hexdigest()
