"""Messages between processes: length-prefixed frames of JSON and raw arrays, never pickle.

The reader trusts no message: each length is checked against its bound before data is read.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quantizer.core.errors import FormatError

Array = NDArray[Any]
_LENGTH = struct.Struct("<I")
MAX_HEADER = 1 << 24
"""The largest number of bytes of a message's JSON."""
MAX_BODY = 1 << 30
"""The largest number of bytes of the models and arrays of a message."""
# numpy 2 has no arrays of more
MAX_AXES = 64
KINDS = "biufc"
"""The kinds of numpy's numbers."""
# a whitelist: numpy's other types include objects and records
NUMBER = re.compile(r"[<>=|]?[biufc][0-9]{1,2}|bool|u?int[0-9]{1,2}|float[0-9]{2}|complex[0-9]{2,3}")
"""The type names in messages. numpy accepts more names, some with a warning."""


@dataclass(frozen=True)
class Frame:
    """A message: plain data, bytes of a form that only the two ends know, and arrays."""

    header: Mapping[str, Any]
    model: bytes = b""
    arrays: Sequence[Array] = ()


@dataclass(frozen=True)
class Job:
    """The work of a worker: a model in the system's own form, and its inputs."""

    model: bytes
    feeds: Mapping[str, Array]
    options: Mapping[str, str | int] = field(default_factory=dict)
    """Options of a session besides the model, such as a variant."""
    declared: Sequence[tuple[str, tuple[int, ...]]] | None = None
    """Type and shape of each output, if the form declares them. A different type or shape is a wrong answer."""


def question(jobs: Sequence[Job]) -> Frame:
    """Return the message that asks for *jobs*."""
    listed = [{"model": len(job.model), "feeds": list(job.feeds), "options": dict(job.options)} for job in jobs]
    arrays = tuple(values for job in jobs for values in job.feeds.values())
    return Frame({"jobs": listed}, b"".join(job.model for job in jobs), arrays)


@dataclass(frozen=True)
class Reply:
    """The result of a job: arrays, or the reason if there are none."""

    outputs: tuple[Array, ...] = ()
    error: str = ""
    """The text of the system's exception."""
    refused: str = ""
    """Why the system has no way to run the job."""
    wrong: str = ""
    """Why the reply is wrong: its outputs have other types or shapes than declared."""


def replies(frame: Frame, jobs: Sequence[Job]) -> list[Reply]:
    """Return the reply to each of *jobs*; FormatError if *frame* holds another number of them or an invalid reply."""
    listed = frame.header.get("replies")
    if not isinstance(listed, list) or len(listed) != len(jobs) or not all(map(_is_reply, listed)):
        raise FormatError("a message that is not a reply")
    if sum(item["outputs"] for item in listed) != len(frame.arrays):
        raise FormatError("a reply whose number of arrays is not the declared one")
    left = iter(frame.arrays)
    found = []
    for item, job in zip(listed, jobs, strict=True):
        reply = Reply(tuple(next(left) for _ in range(item["outputs"])), item.get("error", ""), item.get("refused", ""))
        found.append(_as_declared(reply, job))
    return found


def _is_reply(item: Any) -> bool:
    if not isinstance(item, dict) or type(item.get("outputs")) is not int or item["outputs"] < 0:
        return False
    return all(isinstance(item.get(word, ""), str) for word in ("error", "refused"))


def _as_declared(reply: Reply, job: Job) -> Reply:
    """Return *reply*; if an output has another type or shape than *job* declares, a reply that says so."""
    if job.declared is None or reply.error or reply.refused:
        return reply
    got = [(values.dtype.name, values.shape) for values in reply.outputs]
    wanted = [(kind, tuple(shape)) for kind, shape in job.declared]
    if got == wanted:
        return reply
    return Reply(wrong=f"{_listing(got)}; declared: {_listing(wanted)}")


def _listing(outputs: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{kind} {list(shape)}" for kind, shape in outputs[:MAX_AXES]) or "nothing"


class Source(Protocol):
    """A stream that messages are read from."""

    def read(self, size: int, /) -> bytes:
        """Return *size* bytes; fewer at the end."""
        ...


class Sink(Protocol):
    """A stream that messages are written to."""

    def write(self, data: bytes, /) -> int:
        """Take bytes."""
        ...

    def flush(self) -> None:
        """Send the bytes that `write` took."""
        ...


def send(stream: Sink, frame: Frame) -> None:
    """Write one message."""
    # numpy makes a scalar one-dimensional here: shapes are taken from the arrays themselves
    whole = [np.ascontiguousarray(values) for values in frame.arrays]
    shapes = [[values.dtype.str, list(array.shape)] for values, array in zip(whole, frame.arrays, strict=True)]
    text = json.dumps({**frame.header, "model": len(frame.model), "arrays": shapes}).encode()
    # in one write, so that a message is complete or missing
    stream.write(b"".join([_LENGTH.pack(len(text)), text, frame.model, *(values.tobytes() for values in whole)]))
    stream.flush()


def receive(stream: Source) -> Frame | None:
    """Read one message; None at the end of the stream, FormatError if it is not a message."""
    prefix = stream.read(_LENGTH.size)
    if not prefix:
        return None
    if len(prefix) < _LENGTH.size:
        raise FormatError("a message that ends in its first bytes")
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_HEADER:
        raise FormatError(f"a message with {length:,} bytes of text, more than {MAX_HEADER:,}")
    header = _header(_exactly(stream, length))
    length = header.get("model")
    if not isinstance(length, int) or length < 0:
        raise FormatError("a message without `model`, the number of bytes of its models: 0 in all that a worker sends")
    # checked before anything of the body is read
    sizes = [length, *map(_size, _listed(header))]
    if sum(sizes) > MAX_BODY:
        raise FormatError(f"a message of more than {MAX_BODY:,} bytes")
    model = _exactly(stream, sizes[0])
    arrays = []
    for (kind, shape), size in zip(_listed(header), sizes[1:], strict=True):
        # bytearray, because arrays on bytes cannot be written to
        arrays.append(np.frombuffer(bytearray(_exactly(stream, size)), dtype=np.dtype(kind)).reshape(shape))
    return Frame(header, model, arrays)


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError("a message whose text is not JSON") from None
    if not isinstance(header, dict):
        raise FormatError("a message whose text is not a JSON object")
    return header


def _listed(header: Mapping[str, Any]) -> list[Any]:
    listed = header.get("arrays")
    if not isinstance(listed, list):
        raise FormatError("a message without `arrays`, a list that may be empty")
    return listed


def _size(item: Any) -> int:
    """Return how many bytes an array takes; FormatError if type or shape is invalid."""
    try:
        kind, shape = item
        size = _item_size(kind) if isinstance(kind, str) else 0
    except (TypeError, ValueError, SyntaxError):
        raise FormatError("a message with an array of no type and shape") from None
    good = isinstance(shape, list) and len(shape) <= MAX_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not size or not good:
        raise FormatError(f"a message with an array of type {kind!r} and shape {str(shape)[:MAX_AXES]}")
    count: int = math.prod(shape)
    return count * size


@lru_cache(256)
def _item_size(kind: str) -> int:
    """Return the number of bytes of a number of this type; 0 for a type that messages cannot hold."""
    dtype = np.dtype(kind) if NUMBER.fullmatch(kind) else None
    return 0 if dtype is None or dtype.kind not in KINDS or dtype.shape else dtype.itemsize


def _exactly(stream: Source, size: int) -> bytes:
    read = stream.read(size)
    if len(read) < size:
        raise FormatError(f"a message that ends after {len(read):,} of {size:,} bytes")
    return read
