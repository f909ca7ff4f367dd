"""MLIR text as tokens with places: the part of the language that Top modules need, with bounded sizes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from quantizer.core.errors import FormatError
from quantizer.core.reading import Readable

MAX_TEXT = 64 << 20
"""The largest size of a text, in bytes."""
MAX_DEPTH = 16
"""The largest depth of nested arrays and dictionaries."""
_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
# the first alternative that matches counts: 0x1F is no 0, and 1.5 is no 1
_TOKENS = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[A-Za-z0-9_$.\-]+)
    |(?P<symbol>@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*"))
    |(?P<alias>\#[A-Za-z_][A-Za-z0-9_$.]*)
    |(?P<result>\#[0-9]+)
    |(?P<hex>0x[0-9A-Fa-f]+)
    |(?P<float>[+-]?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?)
    |(?P<int>-?[0-9]+)
    |(?P<arrow>->)
    |(?P<word>!?[A-Za-z_][A-Za-z0-9_$.]*)
    |(?P<mark>[(){}\[\]<>,=:*?])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(?:([nt"\\])|([0-9A-Fa-f]{2})|(.?))', re.DOTALL)
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f]')
_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_PLAIN = {"n": b"\n", "t": b"\t", '"': b'"', "\\": b"\\"}


@dataclass(frozen=True)
class Token:
    """One token: its kind, its text, and where it begins."""

    kind: str
    text: str
    at: int


def quoted(text: str) -> str:
    """Return *text* as an MLIR string, with quotes, backslashes and control characters escaped."""
    return f'"{_SPECIAL.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return _NAMED.get(character) or f"\\{ord(character):02X}"


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of the file at *path*; FormatError if it is too long or no UTF-8."""
    where = os.fspath(path)
    raw = Readable(
        "a Top MLIR text", MAX_TEXT, FormatError, "Name a .mlir file; its weights belong into the .npz file."
    ).bytes_of(Path(where), where)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        column = err.start - raw.rfind(b"\n", 0, err.start)
        raise FormatError(f"{where}:{line}:{column}: byte {raw[err.start]:#04x} is not UTF-8.") from None


class Cursor:
    """A place in the text that moves forward a token at a time."""

    def __init__(self, name: str, text: str, start: int = 0) -> None:
        self.name = name
        self.text = text
        self.token = Token("end", "", start)
        self._end = start
        self._step()

    def error(self, what: str, at: int | None = None) -> FormatError:
        """Return the error for the token at the cursor, or for place *at*."""
        at = self.token.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        return FormatError(f"{self.name}:{line}:{at - self.text.rfind(chr(10), 0, at)}: {what}.")

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        """Raise the error for the token at the cursor, or for place *at*."""
        raise self.error(what, at)

    def _step(self) -> None:
        space = _SPACE.match(self.text, self._end)
        at = space.end() if space else self._end
        if at >= len(self.text):
            self.token, self._end = Token("end", "", len(self.text)), len(self.text)
            return
        found = _TOKENS.match(self.text, at)
        if found is None or found.lastgroup is None:
            self.fail(f"{self.text[at : at + 20]!r} is not a token of MLIR", at)
        self.token, self._end = Token(found.lastgroup, found[0], at), found.end()

    def next(self) -> Token:
        """Return the token at the cursor and move on."""
        token = self.token
        self._step()
        return token

    def at(self, text: str) -> bool:
        """Return whether the token at the cursor is the word or mark *text*."""
        return self.token.text == text and self.token.kind in ("word", "mark", "arrow")

    def skip(self, text: str) -> bool:
        """Move over the word or mark *text* if it comes next; return whether it did."""
        if self.at(text):
            self._step()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Move over the word or mark *text*; FormatError if something else comes next."""
        if not self.at(text):
            self.fail(f"must be {text!r}, got {self.shown()}")
        return self.next()

    def expect_kind(self, kind: str, what: str) -> Token:
        """Move over a token of *kind*; FormatError that asks for *what* if the next token is another."""
        if self.token.kind != kind:
            self.fail(f"must be {what}, got {self.shown()}")
        return self.next()

    def shown(self) -> str:
        """Return the token at the cursor for a message."""
        return "the end of the text" if self.token.kind == "end" else repr(self.token.text[:60])

    def string(self, token: Token) -> bytes:
        """Return the bytes of a string token."""
        body = token.text[token.text.index('"') + 1 : -1]

        def plain(found: re.Match[str]) -> str:
            mark, code, _ = found.groups()
            if mark:
                return _PLAIN[mark].decode()
            if not code:
                self.fail(
                    f'{found[0]!r} is not an escape: write \\n, \\t, \\", \\\\ or two hexadecimal digits', token.at
                )
            # a byte as a lone surrogate until all are joined: several escapes together may be one character of UTF-8
            return chr(0xDC00 + int(code, 16))

        text = _ESCAPE.sub(plain, body)
        return b"".join(_bytes(character) for character in text)

    def label(self, token: Token) -> str:
        """Return the text of a string token, which must be UTF-8."""
        try:
            return self.string(token).decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{token.text[:60]} is not UTF-8", token.at)

    def enclosed(self, what: str) -> str:
        """Return the text between `<` here and its matching `>`, and move over it."""
        start, depth, end = self.token.at, 0, self.token.at
        self.expect("<")
        for end in range(start, len(self.text)):
            character = self.text[end]
            depth += (character == "<") - (character == ">")
            if not depth or depth > MAX_DEPTH or character in '"\n':
                break
        if depth:
            self.fail(f"{what}: the '>' of this '<' is missing", start)
        self._end = end + 1
        self._step()
        return self.text[start + 1 : end]


def _bytes(character: str) -> bytes:
    code = ord(character)
    return bytes([code - 0xDC00]) if 0xDC00 <= code <= 0xDCFF else character.encode("utf-8", "surrogatepass")
