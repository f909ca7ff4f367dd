"""Worker processes that end when their parent process ends."""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def worker_pool(workers: int) -> cf.Executor:
    """Return an executor of *workers* spawned processes.

    A killed parent cannot end its workers, and they themselves keep open the queues on which they wait. So each worker
    watches its parent. Ctrl-C ends the task of a process silently; the parent reports it.
    """
    return _Pool(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


class _Pool(cf.ProcessPoolExecutor):
    """Starts its processes with SIGINT blocked: while they import, nothing could handle the signal."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> cf.Future[R]:
        with _blocked():
            return super().submit(_task, fn, *args, **kwargs)  # type: ignore[arg-type]


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Block SIGINT, if the system can; a signal that arrives meanwhile is handled afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_at_work, _ending = threading.Event(), threading.Event()


def _task(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    if _ending.is_set():
        raise KeyboardInterrupt
    _at_work.set()
    try:
        return fn(*args, **kwargs)
    finally:
        _at_work.clear()


def _interrupted(*_: object) -> None:
    """End the current task and start no other. The pool passes this to the parent as a result.

    An exception in a process that waits for a task would print a traceback.
    """
    _ending.set()
    if _at_work.is_set():
        raise KeyboardInterrupt


def _begin() -> None:
    signal.signal(signal.SIGINT, _interrupted)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # returns when the parent ends, however it ends
        parent.join()
        # not sys.exit: the main thread may wait for a queue forever
        os._exit(1)
