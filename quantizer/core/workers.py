"""Worker processes that end when their parent process ends."""

from __future__ import annotations

import concurrent.futures as cf
import multiprocessing
import os
import threading


def worker_pool(workers: int) -> cf.Executor:
    """Return an executor of *workers* spawned processes.

    A parent that is killed cannot end them, and they hold the queues open on which they wait: each watches its parent itself.
    """
    return cf.ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_watch_parent)


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
