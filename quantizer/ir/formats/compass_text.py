"""The text of Compass IR: sections of `key=value` lines, values typed by their spelling; errors name the place."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import FormatError
from quantizer.core.files import is_file, is_folder
from quantizer.core.reading import Readable
from quantizer.ir.graph import AttrValue, nearest

PathLike: TypeAlias = "str | os.PathLike[str]"
MAX_TEXT = 256 << 20
IR_TEXT = Readable("a text of the Compass IR", MAX_TEXT, FormatError, "Constants belong into the .bin file.")
# limits far above what models need: a damaged file is refused before it takes time or memory
MAX_DEPTH = 16
MAX_RANK = 16
MAX_SIZE = (1 << 31) - 1
_INT = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_INFINITE = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PIECES = re.compile(r"[\[\],]|[^\[\],]+")
_T = TypeVar("_T")

_PLAIN = tuple(
    (
        "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 bool float4_e2m1fn "
        "float6_e2m3fn float6_e3m2fn float8_e4m3fn float8_e5m2"
    ).split()
)
COMPASS_DTYPES: dict[str, DType] = {name: DTYPES[name] for name in _PLAIN} | {
    f"aligned_{name}": DTYPES[name] for name in ("int4", "uint4", "int12", "uint12")
}
_NAMES = {dtype: name for name, dtype in COMPASS_DTYPES.items()}


def parse_value(text: str) -> AttrValue:
    """Return the value that *text* spells: list, number format, bool, int, float, else the text; or ValueError."""
    return _parse_list(text) if text.startswith("[") else _parse_scalar(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in a flat list as texts, because a tensor may be called `1` or `true`."""
    names = _parse_list(text, leaf=str) if text.startswith("[") else None
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"got {text[:60]!r}: write a list of names like [a,b]")
    return tuple(str(name) for name in names)


def format_value(value: AttrValue) -> str:
    """Return the text of *value*; ValueError if reading that text would give another value."""
    text = _spell(value)
    if _is_whole(value):
        return text
    check_text(text)
    if repr(parse_value(text)) != repr(value):
        raise ValueError(f"{value!r} would be read back as {parse_value(text)!r}: the format cannot hold it")
    return text


def _is_whole(value: AttrValue, depth: int = 2) -> bool:
    """Return whether *value* consists of 64-bit integers in lists at most *depth* deep. Its text always reads back."""
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 64
    return depth > 0 and type(value) is tuple and all(_is_whole(item, depth - 1) for item in value)


def format_names(names: Iterable[str]) -> str:
    """Return `[a,b]`; ValueError for a name that a list cannot hold."""
    names = tuple(names)
    text = f"[{','.join(names)}]"
    check_text(text)
    if parse_names(text) != names:
        raise ValueError(f"{list(names)!r}: a name must not be empty, or hold ',', brackets, quotes or outer spaces")
    return text


def check_text(text: str) -> None:
    """Raise ValueError if a line of the file cannot hold *text*."""
    if "=" in text or _CONTROL.search(text) or text != text.strip(" \t"):
        raise ValueError(f"{text[:60]!r} has a '=', a control character or an outer space: no line can hold it")


def format_dtype(dtype: DType) -> str:
    """Return the Compass name of *dtype*; ValueError for a format it does not have."""
    try:
        return _NAMES[dtype]
    except KeyError:
        raise ValueError(f"Compass IR has no {dtype}; it has {', '.join(COMPASS_DTYPES)}") from None


def _spell(value: AttrValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return format_dtype(value)
    if isinstance(value, tuple):
        return f"[{','.join(map(_spell, value))}]"
    return value if isinstance(value, str) else repr(value)


def _parse_scalar(text: str) -> AttrValue:
    # most values, without a regular expression; 18 digits fit int64
    if len(text) < 19 and text.isascii() and text.isdigit():
        return int(text)
    if text in COMPASS_DTYPES:
        return COMPASS_DTYPES[text]
    if text in ("true", "false"):
        return text == "true"
    if text in _INFINITE:
        return _INFINITE[text]
    if _INT.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 64:
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        # an integer that is too long must not become a float unnoticed
        if math.isinf(value) or _INT.fullmatch(text) or text.lstrip("+-").isdigit():
            raise ValueError(f"{text[:60]} is too large: integers have 64 bits, floats are below 1.8e308")
        return value
    return text


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def _parse_list(text: str, leaf: Callable[[str], AttrValue] = _parse_scalar) -> AttrValue:
    items = _flat_items(text)
    return _parse_nested(text, leaf) if items is None else tuple([leaf(_unquoted(item)) for item in items])


def _flat_items(text: str) -> list[str] | None:
    """Return the items of a list without lists in it; None for any other, and for one with an empty item."""
    inner = text[1:-1]
    if text[-1] != "]" or "[" in inner or "]" in inner:
        return None
    items = inner.split(",") if inner.strip() else []
    return items if all(map(str.strip, items)) else None


def _parse_nested(text: str, leaf: Callable[[str], AttrValue]) -> AttrValue:
    stack: list[list[AttrValue]] = []
    closed: AttrValue | None = None
    for piece in _PIECES.findall(text):
        if piece == "[":
            if len(stack) == MAX_DEPTH:
                raise ValueError(f"lists are nested deeper than {MAX_DEPTH}")
            if closed is not None:
                raise ValueError("a ',' is missing before '['")
            stack.append([])
        elif not stack and piece.strip():
            raise ValueError(f"{piece[:20]!r} after the end of the list")
        elif piece in ",]" and piece:
            if closed is None and (piece == "," or stack[-1]):
                raise ValueError("a list item is empty")
            if closed is not None:
                stack[-1].append(closed)
            closed = tuple(stack.pop()) if piece == "]" else None
        elif piece.strip():
            if closed is not None:
                raise ValueError(f"a ',' is missing before {piece[:20]!r}")
            closed = leaf(_unquoted(piece))
    if stack or not isinstance(closed, tuple):
        raise ValueError(f"{len(stack)} ']' missing at the end of the list")
    return closed


class Entry(NamedTuple):
    """One line `key=text` of a section, and its number in the file."""

    key: str
    text: str
    line: int


@dataclass(frozen=True)
class Section:
    """Lines between blank lines, by key."""

    path: str
    line: int
    entries: Mapping[str, Entry]

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def error(self, key: str, what: str) -> FormatError:
        """Return the error for *key*: path, line (of the section where the key is missing), key, *what*."""
        line = self.entries[key].line if key in self.entries else self.line
        return FormatError(f"{self.path}:{line}: {key}: {what}.")

    def text(self, key: str) -> str:
        """Return the value of a required key, unchanged."""
        if key not in self.entries:
            raise self.error(key, f"missing in the section that starts here: write {key}=...")
        if not self.entries[key].text:
            raise self.error(key, "empty: write a value after '='")
        return self.entries[key].text

    def parsed(self, key: str, read: Callable[[str], _T]) -> _T:
        """Return `read(text)` of a required key; its ValueError becomes an error with the place."""
        text = self.text(key)
        try:
            return read(text)
        except ValueError as err:
            raise self.error(key, str(err)) from None

    def value(self, key: str) -> AttrValue:
        """Return the typed value of a key."""
        return self.parsed(key, parse_value) if self.entries[key].text else ""

    def names(self, key: str) -> tuple[str, ...]:
        """Return a required list of names."""
        return self.parsed(key, parse_names)

    def integer(self, key: str) -> int:
        """Return the integer of *key*; FormatError if the section lacks it or it is not an integer."""
        value = self.value(key) if self.text(key) else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be an integer, got {self.text(key)[:60]!r}")
        return value

    def items(self, key: str) -> tuple[AttrValue, ...]:
        """Return a required list."""
        value = self.value(key) if self.text(key) else None
        if not isinstance(value, tuple):
            raise self.error(key, f"must be a list like [...], got {self.text(key)[:60]!r}")
        return value

    def dtype(self, key: str, value: AttrValue) -> DType:
        """Return *value*, read from *key*, as a number format."""
        if isinstance(value, DType):
            return value
        text = format_loosely(value)
        hint = nearest(text, COMPASS_DTYPES) or f" Known: {', '.join(COMPASS_DTYPES)}"
        raise self.error(key, f"no number format {text!r}.{hint}")

    def shape(self, key: str, value: AttrValue) -> tuple[int, ...]:
        """Return *value*, read from *key*, as a shape: at most 16 sizes from 1 to 2**31 - 1."""
        if not isinstance(value, tuple):
            raise self.error(key, f"{format_loosely(value)!r} is not a shape: write [n,...]")
        if len(value) > MAX_RANK:
            raise self.error(key, f"{len(value)} axes: at most {MAX_RANK}")
        sizes = []
        for size in value:
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
                raise self.error(key, f"size {format_loosely(size)!r}: must be an integer from 1 to {MAX_SIZE}")
            sizes.append(size)
        return tuple(sizes)


def format_loosely(value: AttrValue) -> str:
    """Return the text of *value* for a message, cut at 60 characters."""
    return _spell(value)[:60]


def read_sections(path: PathLike) -> list[Section]:
    """Read the sections of the file at *path*; FormatError names the first line that is not `key=value`."""
    name = os.fspath(path)
    return sections_of(_decoded(name), name)


def sections_of(content: str, name: str) -> list[Section]:
    """Read the sections of a text called *name*; FormatError names the first line that is not `key=value`."""
    sections: list[Section] = []
    entries: dict[str, Entry] = {}
    # an empty line more ends the last section as all others end
    for number, raw in enumerate((*content.split("\n"), ""), 1):
        line = raw.rstrip("\r").strip(" \t")
        if line:
            _add(entries, name, line, number)
        elif entries:
            sections.append(Section(name, next(iter(entries.values())).line, entries))
            entries = {}
    if not sections:
        raise FormatError(f"{name}:1: model_name: the file is empty: write a header and layers.")
    return sections


def check_file(name: str) -> None:
    """Raise FormatError if *name* is not a regular file."""
    if not is_file(Path(name)):
        reason = "not a file" if is_folder(Path(name)) else "no such file"
        raise FormatError(f"{name}: {reason}: name a file that exists.")


def _decoded(name: str) -> str:
    check_file(name)
    raw = IR_TEXT.bytes_of(Path(name), name)
    try:
        # -sig: some editors begin a file with a byte order mark
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        raise FormatError(f"{name}:{line}: byte {raw[err.start]:#04x} is not UTF-8: save the text as UTF-8.") from None


def _add(entries: dict[str, Entry], path: str, line: str, number: int) -> None:
    key, equals, text = line.partition("=")
    key, text = key.rstrip(" \t"), text.lstrip(" \t")
    if problem := _problem(entries, line, key, equals, text):
        raise FormatError(f"{path}:{number}: {problem}")
    entries[key] = Entry(key, text, number)


def _problem(entries: Mapping[str, Entry], line: str, key: str, equals: str, text: str) -> str:
    """Return why *line*, without outer spaces, is not a further entry, or None."""
    if control := _CONTROL.search(line):
        return f"{line[:60]!r}: control character {control[0]!r}: remove it."
    if not equals:
        return f"{line[:60]!r}: no '=': every line is key=value; there are no comments."
    if not key:
        return f"{line[:60]!r}: no key before '='."
    if key.startswith("compass."):
        return f"{key[:60]}: keys that begin with 'compass.' are reserved: rename it."
    if "=" in text:
        return f"{key[:60]}: {text[:60]!r} holds a second '=': a line has exactly one."
    if key in entries:
        first = entries[key].line
        return f"{key[:60]}: already on line {first}: a key may occur once in a section; a blank line ends a section."
    return ""
