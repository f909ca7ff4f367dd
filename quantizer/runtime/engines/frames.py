"""How jobs and results cross the border of a process: length-prefixed frames of JSON and raw arrays, never pickle."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_LENGTH = struct.Struct("<I")
MAX_HEADER = 1 << 24


@dataclass(frozen=True)
class Job:
    """What a worker runs: a model in the system's own form, and what it is fed."""

    model: bytes
    feeds: Mapping[str, Array]
    options: Mapping[str, str | int] = field(default_factory=dict)
    """What decides the session beside the model, such as a variant."""


@dataclass(frozen=True)
class Reply:
    """What came of a job: arrays, or the text of what the system raised."""

    outputs: tuple[Array, ...] = ()
    error: str = ""


def send_job(stream: BinaryIO, job: Job) -> None:
    """Write *job*."""
    _send(stream, {"options": dict(job.options), "names": list(job.feeds)}, job.model, tuple(job.feeds.values()))


def receive_job(stream: BinaryIO) -> Job | None:
    """Read a job; None at the end of the stream."""
    found = _receive(stream)
    if found is None:
        return None
    header, model, arrays = found
    return Job(model, dict(zip(header["names"], arrays, strict=True)), header["options"])


def send_reply(stream: BinaryIO, reply: Reply) -> None:
    """Write *reply*."""
    _send(stream, {"error": reply.error}, b"", reply.outputs)


def receive_reply(stream: BinaryIO) -> Reply | None:
    """Read a reply; None at the end of the stream."""
    found = _receive(stream)
    return None if found is None else Reply(tuple(found[2]), found[0]["error"])


def _send(stream: BinaryIO, header: dict[str, Any], model: bytes, arrays: tuple[Array, ...]) -> None:
    whole = [np.ascontiguousarray(values) for values in arrays]
    shapes = [[values.dtype.str, list(array.shape)] for values, array in zip(whole, arrays, strict=True)]
    text = json.dumps({**header, "model": len(model), "arrays": shapes}).encode()
    stream.write(b"".join([_LENGTH.pack(len(text)), text, model, *(values.tobytes() for values in whole)]))
    stream.flush()


def _receive(stream: BinaryIO) -> tuple[dict[str, Any], bytes, list[Array]] | None:
    prefix = stream.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_HEADER:
        return None
    text = stream.read(length)
    if len(text) < length:
        return None
    header = json.loads(text)
    model = stream.read(header["model"])
    arrays = []
    for kind, shape in header["arrays"]:
        dtype = np.dtype(kind)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        raw = stream.read(size)
        if len(raw) < size:
            return None
        arrays.append(np.frombuffer(bytearray(raw), dtype=dtype).reshape(shape))
    return header, model, arrays
