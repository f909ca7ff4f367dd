"""A worker: `python -m quantizer.runtime.engines.workers MODULE` answers jobs on its input until that ends."""

from __future__ import annotations

import importlib
import json
import sys
from collections import OrderedDict
from typing import Any

from quantizer.runtime.engines.frames import Job, Reply, receive, send
from quantizer.runtime.engines.inside import pipes

KEPT = 32
"""Sessions that are kept: a case runs several times, and as tiles of few shapes."""


def main(module: str) -> None:
    """Say with an empty reply that the imports are done, then answer jobs."""
    questions, answers = pipes()
    system = importlib.import_module(module)
    sessions: OrderedDict[tuple[bytes, str], Any] = OrderedDict()
    send(answers, Reply().frame())
    while (frame := receive(questions)) is not None:
        send(answers, _answer(system, sessions, Job.of(frame)).frame())


def _answer(system: Any, sessions: OrderedDict[tuple[bytes, str], Any], job: Job) -> Reply:
    key = (job.model, json.dumps(job.options, sort_keys=True))
    try:
        if key not in sessions:
            sessions[key] = system.load(job.model, job.options)
        sessions.move_to_end(key)
        outputs = system.run(sessions[key], job.feeds)
    except Exception as err:  # noqa: BLE001 - whatever a system raises is its answer
        sessions.pop(key, None)
        return Reply(error=f"{type(err).__name__}: {err}")
    while len(sessions) > KEPT:
        sessions.popitem(last=False)
    return Reply(tuple(outputs))


if __name__ == "__main__":
    main(sys.argv[1])
