"""Reads YAML as plain data, with file, line and column of every key and value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from quantizer.core.errors import SpecError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path

MAX_BYTES = 1 << 20
YAML = Readable("a YAML file of this package", MAX_BYTES, SpecError)
MAX_DEPTH = 40
MAX_DIGITS = 40
SHOWN = 110

Location = tuple[str | int, ...]
Data = Any
"""The kinds of YAML values: mappings, lists and scalars."""
Event = Any
"""An event of the parser; its stubs have no type for it."""
# libyaml's parser is faster; PyYAML may have been built without it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# the line breaks of YAML, because the parser's marks count them
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
# YAML's own set of printable characters
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    # of YAML 1.2 only: yes, no, on and off are texts
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_*-]{1,40}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class Mark(NamedTuple):
    """A place in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Positions:
    """The places of a file's keys and values, by location: the keys and indices that lead to them."""

    name: str
    """The name of the file in messages."""
    lines: tuple[str, ...] = field(repr=False)
    keys: Mapping[Location, Mark] = field(repr=False)
    values: Mapping[Location, Mark] = field(repr=False)

    def mark(self, location: Location, *, key: bool = False) -> Mark:
        """Return the place of the value (or of its key), or of its nearest parent if *location* is not in the file."""
        if key and location in self.keys:
            return self.keys[location]
        while location and location not in self.values:
            location = location[:-1]
        return self.values.get(location, Mark(1, 1))

    def message(self, location: Location, text: str, *, key: bool = False) -> str:
        """Return `file:line:column: location: text`, the source line and a caret."""
        subject = shown_location(location)
        return self.message_at(self.mark(location, key=key), f"{subject}: {text}" if subject else text)

    def message_at(self, mark: Mark, text: str) -> str:
        """Return `file:line:column: text`, the source line and a caret."""
        if mark.line > len(self.lines):
            mark = Mark(len(self.lines), len(self.lines[-1]) + 1)
        head = f"{self.name}:{mark.line}:{mark.column}: {text}"
        line = self.lines[mark.line - 1]
        if not line.strip():
            return head
        # a window of a long line around the mark
        start = max(0, min(mark.column - SHOWN // 2, len(line) - SHOWN))
        shown = line[start : start + SHOWN].replace("\t", " ").rstrip()
        shown = _UNPRINTABLE.sub("\ufffd", shown)
        return f"{head}\n  | {shown}\n  | {' ' * (mark.column - 1 - start)}^"


def shown_location(location: Location) -> str:
    """Return the keys and indices that lead to a value, joined by dots; a key that is not a plain word is quoted."""
    return ".".join(map(_shown_part, location))


def _shown_part(part: str | int) -> str:
    text = str(part)
    return text if _PLAIN_KEY.fullmatch(text) else repr(text if len(text) <= 40 else f"{text[:37]}...")


def load_yaml(source: Path | str, name: str | None = None) -> tuple[Data, Positions]:
    """Return the data of a file (or of a text) and its positions; SpecError for anything but one plain document."""
    if isinstance(source, Path):
        name = name or shown_path(source)
        text = _read(source, name)
    else:
        name = name or "<text>"
        text = source
        if len(text) > MAX_BYTES:
            raise SpecError(f"{name}: {len(text)} characters; at most {MAX_BYTES} are read.")
    reader = _Reader(name, text)
    return reader.read(), reader.positions


def _read(path: Path, name: str) -> str:
    raw = YAML.bytes_of(path, name)
    try:
        # an editor may put a byte order mark in front
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        before = _BREAK.split(raw[: err.start].decode("utf-8-sig", "replace"))
        lines = tuple(_BREAK.split(raw.decode("utf-8-sig", "replace")))
        text = f"byte 0x{raw[err.start]:02x} is not UTF-8. Save the file as UTF-8."
        mark = Mark(len(before), len(before[-1]) + 1)
        raise SpecError(Positions(name, lines, {}, {}).message_at(mark, text)) from None


@dataclass
class _Open:
    """A list or a mapping that is being filled."""

    container: Data
    location: Location
    key: str | None = None
    """The key that waits for its value."""

    def next_location(self) -> Location:
        return (*self.location, len(self.container) if self.key is None else self.key)

    def put(self, value: Data) -> None:
        if self.key is None:
            self.container.append(value)
        else:
            self.container[self.key] = value
            self.key = None


class _Reader:
    """One pass over the parser's events: without recursion, so that depth is a rule and not a crash."""

    def __init__(self, name: str, text: str) -> None:
        self.keys: dict[Location, Mark] = {}
        self.values: dict[Location, Mark] = {}
        self.text = text
        self.roots: list[Data] = []
        self.open = [_Open(self.roots, ())]
        self.positions = Positions(name, tuple(_BREAK.split(text)), self.keys, self.values)

    def _fail(self, mark: Event, text: str) -> NoReturn:
        raise SpecError(self.positions.message_at(mark if isinstance(mark, Mark) else _mark(mark), text)) from None

    def read(self) -> Data:
        if found := _UNPRINTABLE.search(self.text):
            before = _BREAK.split(self.text[: found.start()])
            code = ord(found[0])
            self._fail(Mark(len(before), len(before[-1]) + 1), f"character U+{code:04X} is not allowed in a YAML file.")
        try:
            return self._build()
        except yaml.MarkedYAMLError as err:
            self._syntax(err)
        except yaml.YAMLError as err:
            raise SpecError(f"{self.positions.name}:1:1: {err}.") from None

    def _syntax(self, err: yaml.MarkedYAMLError) -> NoReturn:
        # the context is where the broken construct starts, the problem where it breaks
        mark: Any = err.problem_mark or err.context_mark
        problem = " ".join(part for part in (err.problem, err.context) if part)
        if mark is None:
            raise SpecError(f"{self.positions.name}:1:1: not YAML: {problem}.")
        if err.context_mark is not None and err.context_mark.line != mark.line:
            start = _mark(err.context_mark)
            problem += f" that starts at {start.line}:{start.column}"
        line = self.positions.lines[min(mark.line, len(self.positions.lines) - 1)]
        hint = ""
        if line[: mark.column + 1].strip(" ").startswith("\t"):
            hint = " Indent with spaces, not with tabs."
        elif "expected ',' or" in problem or "mapping values" in problem:
            hint = ' Quote a text that holds any of , : [ ] { } #, as in "stride[0]".'
        self._fail(mark, f"not YAML: {problem}.{hint}")

    def _build(self) -> Data:
        documents = 0
        events: Iterator[Any] = yaml.parse(self.text, _LOADER)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event.start_mark, "a second document starts here; a file holds one. Split the file.")
            elif isinstance(event, yaml.CollectionEndEvent):
                self.open.pop()
            elif isinstance(event, yaml.NodeEvent):
                self._refuse(event)
                self._add(event, self.open[-1])
        return self.roots[0] if self.roots else None

    def _add(self, event: Event, target: _Open) -> None:
        mark = _mark(event.start_mark)
        if isinstance(target.container, dict) and target.key is None:
            target.key = self._key(event, target, mark)
            return
        here = target.next_location() if len(self.open) > 1 else ()
        self.values[here] = mark
        value = self._value(event, mark)
        target.put(value)
        if isinstance(value, dict | list):
            if len(self.open) > MAX_DEPTH:
                self._fail(event.start_mark, f"nested deeper than {MAX_DEPTH} levels.")
            self.open.append(_Open(value, here))

    def _refuse(self, event: Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._fail(event.start_mark, f"alias *{event.anchor}: aliases are not read. Write the value out.")
        if event.anchor is not None:
            self._fail(event.start_mark, f"anchor &{event.anchor}: anchors are not read. Remove it.")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._fail(event.start_mark, f"tag {tag}: tags are not read. Remove it; quote a text to keep it one.")

    def _key(self, event: Event, target: _Open, mark: Mark) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._fail(event.start_mark, "a key must be text, got a list or a mapping.")
        key = self._value(event, mark)
        # a quoted "<<" is an ordinary key
        if key == "<<" and event.implicit[0]:
            self._fail(event.start_mark, "merge key <<: merges are not read. Write the keys out.")
        if not isinstance(key, str):
            shown = event.value[:40]
            self._fail(event.start_mark, f'a key must be text, got {shown or "nothing"}. Write "{shown}" in quotes.')
        here = (*target.location, key)
        if key in target.container:
            first = self.keys[here]
            text = f"key {key[:40]!r} occurs here a second time; the first is at {first.line}:{first.column}."
            self._fail(event.start_mark, text)
        self.keys[here] = mark
        return key

    def _value(self, event: Event, mark: Mark) -> Data:
        if isinstance(event, yaml.MappingStartEvent):
            return {}
        if isinstance(event, yaml.SequenceStartEvent):
            return []
        text: str = event.value
        if not event.implicit[0]:
            return text
        try:
            return scalar(text)
        except ValueError as err:
            self._fail(mark, f"{err}.")


def _mark(mark: Event) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def scalar(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar in the core schema of YAML 1.2; ValueError for a number out of bounds."""
    if text in _WORDS:
        return _WORDS[text]
    # the empty text is in _WORDS
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number of {len(text)} digits; at most {MAX_DIGITS} are read")
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        # without the prefix, because Python's base 0 would also read 0b and underscores
        return int(text[2:] if base != 10 else text, base)
    if _NOT_FINITE.fullmatch(text):
        # Python writes inf and nan without the point
        return float(text.replace(".", ""))
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"{text[:40]} is beyond the largest float64")
        return value
    return text
