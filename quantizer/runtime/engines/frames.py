"""How messages cross the border of a process: length-prefixed frames of JSON and raw arrays, never pickle.

Whoever reads trusts nothing: a length is held against its bound before anything of it is read.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quantizer.core.errors import FormatError

Array = NDArray[Any]
_LENGTH = struct.Struct("<I")
MAX_HEADER = 1 << 24
"""Bytes of the JSON of a message."""
MAX_BODY = 1 << 30
"""Bytes of everything else of it."""
MAX_AXES = 64
KINDS = "biufc"
"""The kinds of numpy's numbers."""


@dataclass(frozen=True)
class Frame:
    """A message: plain data, bytes of a form that only the two ends know, and arrays."""

    header: Mapping[str, Any]
    model: bytes = b""
    arrays: Sequence[Array] = ()


@dataclass(frozen=True)
class Job:
    """What a worker runs: a model in the system's own form, and what it is fed."""

    model: bytes
    feeds: Mapping[str, Array]
    options: Mapping[str, str | int] = field(default_factory=dict)
    """What decides the session beside the model, such as a variant."""

    def frame(self) -> Frame:
        """Return it as a message."""
        return Frame({"options": dict(self.options), "names": list(self.feeds)}, self.model, tuple(self.feeds.values()))

    @classmethod
    def of(cls, frame: Frame) -> Job:
        """Return what *frame* says."""
        return cls(frame.model, dict(zip(frame.header["names"], frame.arrays, strict=True)), frame.header["options"])


@dataclass(frozen=True)
class Reply:
    """What came of a job: arrays, or the text of what the system raised."""

    outputs: tuple[Array, ...] = ()
    error: str = ""

    def frame(self) -> Frame:
        """Return it as a message."""
        return Frame({"error": self.error}, b"", self.outputs)

    @classmethod
    def of(cls, frame: Frame) -> Reply:
        """Return what *frame* says; FormatError where it is no reply."""
        error = frame.header.get("error")
        if not isinstance(error, str):
            raise FormatError("a message that is no reply")
        return cls(tuple(frame.arrays), error)


class Source(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """Return *size* bytes; fewer at the end."""
        ...


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int:
        """Take bytes."""
        ...

    def flush(self) -> None:
        """Send what was taken."""
        ...


def send(stream: Sink, frame: Frame) -> None:
    """Write one message."""
    whole = [np.ascontiguousarray(values) for values in frame.arrays]
    shapes = [[values.dtype.str, list(array.shape)] for values, array in zip(whole, frame.arrays, strict=True)]
    text = json.dumps({**frame.header, "model": len(frame.model), "arrays": shapes}).encode()
    stream.write(b"".join([_LENGTH.pack(len(text)), text, frame.model, *(values.tobytes() for values in whole)]))
    stream.flush()


def receive(stream: Source) -> Frame | None:
    """Read one message; None at the end of the stream, FormatError where what comes is none."""
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
        raise FormatError("a message of a length that is none")
    sizes = [length, *map(_size, _listed(header))]
    if sum(sizes) > MAX_BODY:
        raise FormatError(f"a message of more than {MAX_BODY:,} bytes")
    model = _exactly(stream, sizes[0])
    arrays = []
    for (kind, shape), size in zip(_listed(header), sizes[1:], strict=True):
        arrays.append(np.frombuffer(bytearray(_exactly(stream, size)), dtype=np.dtype(kind)).reshape(shape))
    return Frame(header, model, arrays)


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError("a message whose text is no JSON") from None
    if not isinstance(header, dict):
        raise FormatError("a message whose text is no JSON object")
    return header


def _listed(header: Mapping[str, Any]) -> list[Any]:
    listed = header.get("arrays")
    if not isinstance(listed, list):
        raise FormatError("a message that lists no arrays")
    return listed


def _size(item: Any) -> int:
    """Return how many bytes an array takes; FormatError where type or shape is none."""
    try:
        kind, shape = item
        dtype = np.dtype(kind) if isinstance(kind, str) else None
    except (TypeError, ValueError, SyntaxError):
        raise FormatError("a message with an array of no type and shape") from None
    good = isinstance(shape, list) and len(shape) <= MAX_AXES and all(type(n) is int and n >= 0 for n in shape)
    if dtype is None or dtype.kind not in KINDS or dtype.shape or not good:
        raise FormatError(f"a message with an array of type {kind!r} and shape {str(shape)[:MAX_AXES]}")
    count: int = math.prod(shape)
    return count * dtype.itemsize


def _exactly(stream: Source, size: int) -> bytes:
    read = stream.read(size)
    if len(read) < size:
        raise FormatError(f"a message that ends after {len(read):,} of {size:,} bytes")
    return read
