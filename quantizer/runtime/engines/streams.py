"""The two pipes of a foreign process. A thread serves each of them, so that no wait exceeds its limit.

A pipe ends only when its last holder ends, and a process may pass it on to a process that cannot be found. A
read that blocks would then never end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from queue import Empty, Full, Queue, SimpleQueue
from typing import IO, BinaryIO, cast

PART = 1 << 16
"""The number of bytes in one read or write."""
PARTS = 32
"""The largest number of parts that may wait for the reader."""
TICK = 0.1
"""Seconds between two checks whether a wait is over."""
GRACE = 2.0
"""The number of seconds to wait for the end of a pipe after its process ended or its time is up."""


class Answers:
    """The output of a process."""

    def __init__(self, process: subprocess.Popen[bytes], over: threading.Event) -> None:
        self._process = process
        # bounded: a process that floods its output waits instead of filling our memory
        self._parts: Queue[bytes] = Queue(PARTS)
        self._rest = bytearray()
        self._ended = False
        self.deadline = 0.0
        """The end of its time, on the clock time.monotonic."""
        threading.Thread(target=_take, args=(process.stdout, self._parts, over), daemon=True).start()

    def read(self, size: int) -> bytes:
        """Return *size* bytes; fewer if the pipe ended or the wait was given up."""
        while len(self._rest) < size and not self._ended:
            part = self._next()
            self._ended = not part
            self._rest += part
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found

    def unasked(self) -> int:
        """Return how many bytes have come that no message took."""
        with contextlib.suppress(Empty):
            while not self._ended:
                part = self._parts.get_nowait()
                self._ended = not part
                self._rest += part
        return len(self._rest)

    def _next(self) -> bytes:
        """Return the next part; empty at the end."""
        gone: float | None = None
        while True:
            with contextlib.suppress(Empty):
                return self._parts.get(timeout=TICK)
            now = time.monotonic()
            if gone is None and self._process.poll() is not None:
                # an ended process may have left bytes in the pipe, for which there is still some time
                gone = now
            if now > min(self.deadline, now if gone is None else gone) + GRACE:
                return b""


class Questions:
    """Standard input of a process. A thread writes it, so that `write` never blocks."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._parts: SimpleQueue[bytes | None] = SimpleQueue()
        threading.Thread(target=_give, args=(process.stdin, self._parts), daemon=True).start()

    def write(self, data: bytes) -> int:
        """Queue *data* for the process. If it never reads the data, its answer times out."""
        self._parts.put(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the thread sends queued data at once."""

    def close(self) -> None:
        """End the pipe once all of it is written."""
        self._parts.put(None)


def _take(stream: IO[bytes], parts: Queue[bytes], over: threading.Event) -> None:
    """Read until the end of *stream*, or until the process is *over*."""
    with contextlib.suppress(OSError, ValueError), stream:
        while not over.is_set():
            # os.read returns what is there; a buffered read would wait for a full part
            part = os.read(stream.fileno(), PART)
            while not over.is_set():
                with contextlib.suppress(Full):
                    parts.put(part, timeout=TICK)
                    break
            if not part:
                return


def _give(stream: IO[bytes], parts: SimpleQueue[bytes | None]) -> None:
    """Write incoming data until it ends or the reader is gone."""
    with contextlib.suppress(OSError, ValueError), stream:
        while (part := parts.get()) is not None:
            cast("BinaryIO", stream).write(part)
            stream.flush()
