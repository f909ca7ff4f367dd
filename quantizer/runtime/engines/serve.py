"""The worker's side of the protocol, in one file that needs only numpy: `python serve.py WORKER`.

WORKER is a Python file or an importable module with

    load(model, options) -> session     prepares a model; NotImplementedError: the engine has no kernel for it
    run(session, feeds) -> arrays       runs it once; feeds and results are numpy arrays

and, unless it is part of this package, the constants of its greeting: NAME, VERSION, FORM, and if known
DEVICE, ISA, OPERATORS (names of quantizer's operators; absent: all that the form can express), FLOATS (whether it runs
float models too).

Messages have a length of 4 bytes (little endian) before their JSON text; after it come models, then arrays, as the
text lists them. docs/engines.md describes each field.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import os
import signal
import struct
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

PROTOCOL = 1
KEPT = 32
"""The number of sessions that are kept, because a case runs several times, and as tiles of a few shapes."""
LOOK = 1.0
"""Seconds between two checks that the worker's parent still runs."""
LENGTH = struct.Struct("<I")
CAPABILITIES = 0x20080522
"""Version 3 of Linux's capabilities."""
READING = (19, 21, 38)
"""The rights CAP_SYS_PTRACE, CAP_SYS_ADMIN and CAP_PERFMON."""
GREETED = {
    "NAME": "",
    "VERSION": "",
    "FORM": "",
    "DEVICE": "cpu",
    "ISA": "",
    "OPERATORS": (),
    "FORMATS": (),
    "FLOATS": False,
}
"""The declarations of a worker, with their defaults."""


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the stream of questions and the stream of answers.

    Printed text goes to the error stream, and code that reads the standard input finds it empty: neither can damage a
    message.
    """
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    # descriptors, not sys.stdin: code in C uses these, too
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    _give_up_rights()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # ended before the judge
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    return questions, answers


def _give_up_rights() -> None:
    """On Linux, give up root's rights to read other processes. Other users do not have these rights."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError, ImportError):
        import ctypes

        system = ctypes.CDLL(None, use_errno=True)
        head = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
        sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: capabilities 0 to 31, then the rest
        if system.capget(head, sets) == 0:
            for right in READING:
                for place in range(3):
                    sets[3 * (right // 32) + place] &= ~(1 << right % 32)
            system.capset(head, sets)


def main(worker: str) -> None:
    """Send the greeting, then answer questions until the stream ends."""
    questions, answers = pipes()
    system = _loaded(worker)
    sessions: OrderedDict[tuple[bytes, str], Any] = OrderedDict()
    said = {key.lower(): getattr(system, key, default) for key, default in GREETED.items()}
    _send(answers, {"protocol": PROTOCOL, "python": sys.version.split()[0], **said}, [])
    while (asked := _receive(questions)) is not None:
        found = [_answer(system, sessions, *job) for job in asked]
        replies = [{**words, "outputs": len(outputs)} for words, outputs in found]
        _send(answers, {"replies": replies}, [array for _, outputs in found for array in outputs])


def _loaded(worker: str) -> Any:
    """Return the module called *worker*: a file, or a name that its interpreter finds; no folder is added for it."""
    neighbours = str(Path(__file__).parent)  # a worker may import modules of these names
    sys.path[:] = [place for place in sys.path if place != neighbours]
    if not worker.endswith(".py"):
        return importlib.import_module(worker)
    spec = importlib.util.spec_from_file_location("engine_worker", worker)
    if spec is None or spec.loader is None:
        raise ImportError(f"{worker}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as err:  # a run shows only the last line of the error, which does not say where it was raised
        raise SystemExit(f"SyntaxError: {err.filename}:{err.lineno}: {err.msg}") from None
    except ModuleNotFoundError as err:
        if not Path(worker).with_name(f"{err.name}.py").is_file():
            raise
        said = f"ModuleNotFoundError: {err.name}.py lies beside the worker, and its folder is not searched."
        raise SystemExit(f"{said} Write sys.path.append(str(Path(__file__).parent)) before the import.") from None
    return module


def _answer(
    system: Any,
    sessions: OrderedDict[tuple[bytes, str], Any],
    model: bytes,
    feeds: dict[str, Any],
    options: dict[str, Any],
) -> tuple[dict[str, str], list[Any]]:
    """Return the result of a job: arrays, or the words `refused` or `error`."""
    import numpy as np

    # the same model with other options is another session
    key = (model, json.dumps(options, sort_keys=True))
    try:
        if key not in sessions:
            sessions[key] = system.load(model, options)
        # the least recently used session is dropped first
        sessions.move_to_end(key)
        given = system.run(sessions[key], feeds)
        # iterating over an array would give its rows as outputs
        if given is None or isinstance(given, np.ndarray):
            raise TypeError(f"run returned {'None' if given is None else 'an array'}: must return a list of arrays")
        outputs = [np.asarray(values) for values in given]
    except NotImplementedError as err:
        return {"refused": f"{err}" or "the engine has no kernel for it"}, []
    except Exception as err:  # noqa: BLE001 - whatever a system raises is its answer
        # an error may have left it in an unknown state
        sessions.pop(key, None)
        return {"error": f"{type(err).__name__}: {err}"}, []
    while len(sessions) > KEPT:
        sessions.popitem(last=False)
    return {}, outputs


def _receive(stream: BinaryIO) -> list[tuple[bytes, dict[str, Any], dict[str, Any]]] | None:
    """Read one message; return model, feeds and options of each of its jobs, None at the end of the stream."""
    import numpy as np

    prefix = stream.read(LENGTH.size)
    if len(prefix) < LENGTH.size:
        return None
    header = json.loads(stream.read(LENGTH.unpack(prefix)[0]))
    models = [stream.read(job["model"]) for job in header["jobs"]]
    arrays = []
    for kind, shape in header["arrays"]:
        dtype = np.dtype(kind)
        data = bytearray(stream.read(math.prod(shape) * dtype.itemsize))
        arrays.append(np.frombuffer(data, dtype).reshape(shape))
    left = iter(arrays)
    return [
        (model, {name: next(left) for name in job["feeds"]}, job["options"])
        for model, job in zip(models, header["jobs"], strict=True)
    ]


def _send(stream: BinaryIO, header: dict[str, Any], arrays: list[Any]) -> None:
    """Write one message."""
    text = json.dumps({**header, "model": 0, "arrays": [[a.dtype.str, list(a.shape)] for a in arrays]}).encode()
    stream.write(b"".join([LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)]))
    stream.flush()


def _end_with(parent: int) -> None:
    """End the whole group once *parent* is gone: a function that hangs would never see that its input ended."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    if hasattr(os, "killpg"):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
