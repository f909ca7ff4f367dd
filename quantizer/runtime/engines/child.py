"""A child process for foreign code, with limits of time and memory. It ends together with its own children.

All waiting for the process is done in one place, and a watch ends the process if it takes too long or uses too much
memory. Reading and writing of pipes have limits, too. So every wait ends, even if the process hangs or hides.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import psutil

from quantizer.core.errors import FormatError
from quantizer.core.wording import counted
from quantizer.runtime.engines.frames import Frame, receive, send
from quantizer.runtime.engines.streams import GRACE, TICK, Answers, Questions

FAMILY = 10
"""The process is checked this many times for each check of its children, which is slower."""
HELD = 1 << 16
"""The number of bytes of a process's output that are kept, from its end."""
SAID = 300
"""The number of characters of a line that a message repeats."""
SET_DUMPABLE = 4
"""The number of PR_SET_DUMPABLE in Linux's prctl."""
MARK = "QUANTIZER_CHILD"
"""An environment variable of a process, inherited by all processes that it starts."""


class DiedError(Exception):
    """A process ended, hung, used too much memory, or sent something that is not a message; the text says which."""


class StoppedError(DiedError):
    """A process was ended because it broke a limit."""


@dataclass(frozen=True)
class Limits:
    """Limits of time and memory of a process that runs foreign code."""

    patience: float = 60.0
    """The time limit of one answer, in seconds."""
    starting: float = 300.0
    """Seconds for its imports, enough for a busy machine."""
    memory: int = 8 << 30
    """The memory limit of it and its children, in bytes."""


class Printed:
    """The end of a process's output since the last question."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._lock = threading.Lock()

    def add(self, part: bytes) -> None:
        """Keep *part*, and at most HELD bytes before it."""
        with self._lock:
            self._parts.append(part)
            while sum(map(len, self._parts)) - len(self._parts[0]) >= HELD:
                self._parts.popleft()

    def forget(self) -> None:
        """Drop everything, because output of an earlier question does not belong to the next one."""
        with self._lock:
            self._parts.clear()

    def text(self) -> str:
        """Return the text that was kept."""
        with self._lock:
            return b"".join(self._parts).decode("utf-8", "replace")


class Child:
    """One process that answers one message at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], limits: Limits) -> None:
        _close_memory()
        self._limits = limits
        # a process that leaves the session keeps its environment, by which it is found
        self._mark = secrets.token_hex(8)
        self._process = started(command, {**environment, MARK: self._mark})
        self._printed = Printed()
        self._deadline: float | None = None
        self._verdict: list[str] = []
        self._over = threading.Event()
        self._questions = Questions(self._process)
        self._answers = Answers(self._process, self._over)
        errors = cast("BinaryIO", self._process.stderr)
        # a full pipe would block the process: it must be emptied even if nobody asks for the text
        self._reader = threading.Thread(target=_drain, args=(errors, self._printed), daemon=True)
        self._reader.start()
        threading.Thread(target=_watch, args=(weakref.ref(self), self._process, self._over), daemon=True).start()
        self._ended = weakref.finalize(self, _end, self._process, self._questions, self._over, self._mark, os.getpid())

    def ask(self, frame: Frame, patience: float | None = None) -> Frame:
        """Return the answer to *frame*; DiedError if there is no answer, and then the process has ended."""
        self._printed.forget()
        return self._waited(frame, self._limits.patience if patience is None else patience)

    def greeting(self) -> Frame:
        """Return the first message, which comes unasked."""
        return self._waited(None, self._limits.starting)

    def said(self) -> str:
        """Return the end of the process's output since the last question."""
        return self._printed.text()

    def close(self) -> int:
        """End the process and all processes that it started; return how many of these were still running."""
        if not self._ended.alive:
            return 0
        self._questions.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        left = _settled(self._process.pid, self._mark)
        self._ended()
        return left

    def _waited(self, frame: Frame | None, patience: float) -> Frame:
        reply, why = None, ""
        # the watch ends a process that is late; the reader gives up by itself if that does not help
        self._deadline = self._answers.deadline = time.monotonic() + patience
        try:
            if frame is not None:
                self._check_silence()
                send(self._questions, frame)
            reply = receive(self._answers)
            self._check_silence()
        except FormatError as err:
            reply, why = None, f"answered with {err}"
        except BaseException:
            self._ended()  # only half a message was sent: what follows cannot be matched to a question
            raise
        self._deadline = None
        if reply is None:
            text = self._obituary(why, patience)
            raise (StoppedError if self._verdict else DiedError)(text)
        return reply

    def _check_silence(self) -> None:
        """Refuse bytes that no question asked for, because they would be taken for the next answer."""
        if count := self._answers.unasked():
            raise FormatError(f"{counted(count, 'byte')} that no question asked for")

    def _obituary(self, why: str, patience: float) -> str:
        """Return how the process ended, and its last line of output; a process that still runs is ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # an ended pipe is seen a moment before the exit code
            self._process.wait(0 if why else GRACE)
        code = self._process.poll()
        self._ended()
        if self._verdict:
            why = self._verdict[0].format(patience=patience)
        elif not why and code is None:
            why = "closed its output"
        elif not why:
            assert code is not None, "a process without an exit code is the case above"
            why = f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        # the last words may still be in the pipe; a process that left the session can keep it open
        self._reader.join(GRACE)
        lines = self.said().strip().splitlines()
        return f"{why}: {lines[-1][:SAID]}" if lines else why

    def _look(self, process: psutil.Process, *, family: bool) -> str | None:
        """Return why the process must end now, or None."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            return "did not answer within {patience:g} s"
        held = process.memory_info().rss
        if family:
            # a child may have ended by now, which counts as 0
            held += sum(_memory(child) for child in process.children(recursive=True))
        if held > self._limits.memory:
            return f"took more than {self._limits.memory / (1 << 20):,.0f} MB of memory"
        return None

    def stopped(self, why: str) -> None:
        """Remember why the watch ends the process."""
        self._verdict.append(why)


@functools.cache
def _close_memory() -> None:
    """Let no process of the same user read or write this one's memory, environment and open files (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)


def started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in a new session, with a pipe for each stream."""
    return subprocess.Popen(  # noqa: S603 - our own module, by an interpreter that the user may name
        [*command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=dict(environment),
    )


def _watch(child: weakref.ref[Child], process: subprocess.Popen[bytes], over: threading.Event) -> None:
    """Look at the process until it ends, and end it where it breaks a limit."""
    with contextlib.suppress(psutil.Error):
        seen, count = psutil.Process(process.pid), 0
        while not over.wait(TICK):
            count += 1
            known = child()
            if known is None:  # this thread holds no reference to the child, so that its finalizer can end the process
                return
            why = known._look(seen, family=count % FAMILY == 0)
            if why is not None:
                known.stopped(why)
                _kill(process.pid)
                return
            del known


def _memory(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _drain(stream: BinaryIO, printed: Printed) -> None:
    """Read all output and keep its end."""
    with contextlib.suppress(OSError, ValueError), stream:
        while part := os.read(stream.fileno(), HELD):
            printed.add(part)


def _settled(pid: int, mark: str) -> int:
    """Return how many child processes of a process remain after a short wait for them to end."""
    until = time.monotonic() + GRACE
    while (left := _left(pid, mark)) and time.monotonic() < until:
        time.sleep(TICK)
    return len(left)


def _left(pid: int, mark: str) -> list[psutil.Process]:
    """Return the living processes of a session or with its mark, without the session's first process."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in (pid, os.getpid()) and process.status() != psutil.STATUS_ZOMBIE:
                # the process leads its session, whose id is its own
                same = hasattr(os, "getsid") and os.getsid(process.pid) == pid
                if same or process.environ().get(MARK) == mark:
                    found.append(process)
    return found


def _kill(pid: int) -> None:
    """Kill a process with its group."""
    with contextlib.suppress(OSError, psutil.Error):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            for process in (*psutil.Process(pid).children(recursive=True), psutil.Process(pid)):
                process.kill()


def _end(process: subprocess.Popen[bytes], questions: Questions, over: threading.Event, mark: str, owner: int) -> None:
    """Kill the process, its group, and processes that left the group. In a fork of its owner, do nothing."""
    # the finalizer also runs in a fork, whose parent still uses the process
    if os.getpid() != owner:
        return
    over.set()
    for one in _left(process.pid, mark):
        with contextlib.suppress(psutil.Error):
            one.kill()
    _kill(process.pid)
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    questions.close()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
