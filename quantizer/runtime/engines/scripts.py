"""Parts of stand-alone scripts: numbers as Python text, and the lines that run a model on a system's own API."""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quantizer.runtime.engines.frames import Array, Job

WIDTH = 118
"""The number of columns of a script."""
MOST_WRITTEN = 400
"""Up to this number of elements are written as numbers; longer arrays are compressed."""


@dataclass(frozen=True)
class Source:
    """How a script runs a job: the imports it needs, and the lines that set `got` to the outcome."""

    imports: tuple[str, ...]
    """Lines, in the order of isort."""
    versions: tuple[str, ...]
    """Parts of an f-string that describe what ran."""
    lines: tuple[str, ...]
    """Lines that set `got`. They may use numpy as `np` and the operands by their names."""


class Writer(Protocol):
    """A function that an engine names (`Engine.script`).

    known: arrays that the script already defines, by name.
    """

    def __call__(self, job: Job, known: Mapping[str, Array]) -> Source:
        """Return how a script runs *job*; UnsupportedError for one that no script can hold."""


def array_text(values: Array) -> str:
    """Return an expression of numpy that gives *values*, in their type and shape."""
    kind = f"np.{values.dtype.name.replace('bool', 'bool_')}"
    shape = str(list(values.shape))
    # one number tells more to a reader than many equal ones
    if values.size > 1 and (values == values.flat[0]).all():
        return f"np.full({shape}, {_plain(values.reshape(-1)[0])}, {kind})"
    if values.size <= MOST_WRITTEN:
        return f"np.array({_plain(values)}, {kind}){f'.reshape({shape})' if not values.size else ''}"
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()
    return f'np.frombuffer(zlib.decompress(base64.b64decode("{packed}")), {kind}).reshape({shape})'


def _plain(values: Array) -> str:
    """Return the text of nested lists; a float32 number gets the fewest digits that identify it."""
    if values.ndim:
        return f"[{', '.join(_plain(part) for part in values)}]"
    value = values.item()
    if isinstance(value, float):
        return str(values.dtype.type(value)) if np.isfinite(value) else f'float("{value}")'
    return str(value)


def expression(values: Array, known: Mapping[str, Array]) -> str:
    """Return the text of *values*: a known array, transposed or converted if needed, else numbers."""
    for name, candidate in known.items():
        if (turned := _turned(candidate, values)) is not None:
            cast = "" if candidate.dtype == values.dtype else f".astype(np.{values.dtype.name})"
            return f"{turned.format(name=name)}{cast}"
    return array_text(values)


def _turned(candidate: Array, values: Array) -> str | None:
    """Return the text, with a place for its name, by which *candidate* becomes *values*; None if it cannot."""
    # a script that refers to an operand shows where a number comes from
    for text, other in _views(candidate):
        if other.shape == values.shape and np.array_equal(other, values):
            return text
    return None


def _views(values: Array) -> Iterator[tuple[str, Array]]:
    if values.ndim == 0:
        return
    yield "{name}", values
    if values.ndim == 2:
        yield "{name}.T", values.T
    if values.ndim > 2:
        yield "np.moveaxis({name}, 1, -1)", np.moveaxis(values, 1, -1)
        yield "{name}.swapaxes(0, 1)", values.swapaxes(0, 1)


def assigned(name: str, text: str) -> list[str]:
    """Return the lines of `name = text`. Long lines are broken, also inside quoted texts."""
    line = f"{name} = {text}"
    if len(line) <= WIDTH:
        return [line]
    if '"' in text:
        before, packed, after = text.split('"', 2)
        pieces = textwrap.wrap(packed, WIDTH - 6)
        return [f"{name} = {before}", *(f'    "{piece}"' for piece in pieces), after]
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def feeds_text(feeds: Mapping[str, Array], known: Mapping[str, Array]) -> str:
    """Return the text of a dict of a model's inputs."""
    return "{" + ", ".join(f'"{name}": {expression(values, known)}' for name, values in feeds.items()) + "}"


def listed(feeds: Mapping[str, Array], known: Mapping[str, Array]) -> str:
    """Return the text of a list of a model's inputs."""
    return f"[{', '.join(expression(values, known) for values in feeds.values())}]"


def packed(name: str, model: bytes) -> list[str]:
    """Return the lines that set *name* to the bytes of a file."""
    text = base64.b64encode(zlib.compress(model, 9)).decode()
    return assigned(name, f'zlib.decompress(base64.b64decode("{text}"))')


def needed_imports(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the imports of the standard library that *lines* use."""
    text = "\n".join(lines)
    return tuple(f"import {name}" for name in ("base64", "os", "zlib") if f"{name}." in text)
