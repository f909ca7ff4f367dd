"""Reads files within limits: regular files only, at most a given number of bytes, one kind of error for every problem.

Every module that reads foreign files uses this one; a test checks that no other module opens files.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from quantizer.core.errors import QuantizerError
from quantizer.core.wording import shown_path

_MORE = 1 << 20
"""Bytes to read at once after the size that a file reports."""


@dataclass(frozen=True)
class Readable:
    """A kind of file: its name, its largest size, and the error for an invalid one."""

    what: str
    """The kind of file with its article, such as `a cfg file`."""
    most: int
    error: type[QuantizerError]
    hint: str = ""
    """The remedy, a sentence that follows every message."""

    def refused(self, where: str, why: str) -> QuantizerError:
        """Return the error of an invalid file."""
        return self.error(f"{where}: {why}." + (f" {self.hint}" if self.hint else ""))

    @contextmanager
    def opened(self, path: Path, where: str = "") -> Iterator[BufferedReader]:
        """Open a file of at most `most` bytes; `error` for a longer or missing file, a folder, a device or a pipe."""
        where = where or shown_path(path)
        try:
            self._check(os.stat(path), where)  # noqa: PTH116 - a name that no file can have must raise our error too
            # Does not wait for a pipe that replaced the file after the check.
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            with os.fdopen(handle, "rb") as file:
                # again, on the file that was really opened: the name may mean another one by now
                self._check(os.fstat(handle), where)
                yield file
        except OSError as err:
            raise self.refused(where, f"cannot be read: {(err.strerror or str(err)).lower()}") from None
        except ValueError as err:
            if "null" not in str(err):
                raise
            raise self.refused(where, "cannot be read: its name holds a null character") from None

    def bytes_of(self, path: Path, where: str = "") -> bytes:
        """Return the bytes of the file at *path*; errors as in `opened`."""
        where = where or shown_path(path)
        with self.opened(path, where) as file:
            raw = file.read(os.fstat(file.fileno()).st_size)
            while more := file.read(_MORE):  # a file may grow, and files in /proc report a size of 0
                raw += more
                if len(raw) > self.most:
                    raise self._too_long(where)
        return raw

    def text_of(self, path: Path, where: str = "") -> str:
        """Return the text of the file at *path*, UTF-8 with or without its mark; errors as in `opened`."""
        where = where or shown_path(path)
        return self.decoded(self.bytes_of(path, where), where)

    def decoded(self, raw: bytes, where: str) -> str:
        """Return *raw* as text; the error names the first byte that is not UTF-8."""
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as err:
            raise self.refused(where, f"byte {err.start} is not UTF-8: this is not {self.what}") from None

    def json_of(self, path: Path, where: str = "") -> Any:
        """Return the JSON value in the file at *path*; errors as in `opened`."""
        where = where or shown_path(path)
        return self.parsed(self.text_of(path, where), where)

    def parsed(self, text: str, where: str) -> Any:
        """Return the JSON value of *text*; an error if it is nested too deeply or holds too long a number."""
        if not text.strip():
            raise self.refused(where, f"is empty: this is not {self.what}")
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as err:
            raise self.refused(where, f"not JSON: {one_line(err)}: this is not {self.what}") from None

    def toml_of(self, path: Path, where: str = "") -> dict[str, Any]:
        """Return the tables of the TOML file at *path*; too deep nesting and too long numbers are errors, too."""
        where = where or shown_path(path)
        text = self.text_of(path, where)
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as err:
            raise self.refused(where, f"not TOML: {one_line(err)}: this is not {self.what}") from None

    def lines_of(self, path: Path, where: str = "") -> Iterator[tuple[int, str]]:
        """Yield number and text of each line that is not blank, one at a time; errors as in `opened`."""
        where = where or shown_path(path)
        with self.opened(path, where) as file:
            number = taken = 0
            # bounded, because a file may consist of one endless line
            while raw := file.readline(self.most + 1 - taken):
                number, taken = number + 1, taken + len(raw)
                if taken > self.most:
                    raise self._too_long(where)
                line = self.decoded(raw, f"{where}:{number}").strip("\r\n")
                if line.strip():
                    yield number, line

    def _check(self, found: os.stat_result, where: str) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise self.refused(where, "cannot be read: is a directory")
        if not stat.S_ISREG(found.st_mode):
            raise self.refused(where, f"is a device or a pipe, not {self.what}")
        if found.st_size > self.most:
            raise self._too_long(where)

    def _too_long(self, where: str) -> QuantizerError:
        return self.refused(where, f"more than {self.most} bytes: this is not {self.what}")


def one_line(err: BaseException) -> str:
    """Return an error's text on one line of at most 200 characters."""
    text = " ".join(str(err).split()) or type(err).__name__
    return (text if len(text) <= 200 else f"{text[:197]}...").rstrip(".")


def shown_value(value: object) -> str:
    """Return a value as a message shows it: at most 80 characters, or its type if it cannot be written.

    Numbers with more digits than Python prints, and lists nested too deeply, cannot be written.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= 80 else f"{text[:77]}..."
