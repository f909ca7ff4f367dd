"""Helpers for messages: quote values and paths, suggest the nearest legal word. Every command imports this module."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from quantizer_conformance import DISTRIBUTION

MOST_NEAR = 3
MOST_LISTED = 24
LONGEST_LINE = 2000
"""The largest number of characters of a line of an error, because foreign names may be megabytes long."""
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
"""Control characters, halves of surrogate pairs, marks that reverse or hide the following text, and characters that XML
forbids."""

_COMMANDS = re.compile(r"^(?=[ \t]*(?:::|##\[))", re.MULTILINE)
"""The start of a line that GitHub's or Azure's runner would obey."""


def to_install(extra: str) -> str:
    """Return the command that installs the requirements of an extra of this package."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def got(value: object) -> str:
    """Return *value* as a message quotes it, never longer than a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        text = f"[{', '.join(map(got, value[:9]))}{', ...' if len(value) > 9 else ''}]"
    else:
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def near(word: object, legal: Iterable[object]) -> str:
    """Return ` Did you mean 'x'?` for the nearest of *legal*, or for names that begin with the given one; else ""."""
    words = [str(item) for item in legal]
    # a name that is only begun, such as conv for conv_transpose2d, comes before names of similar letters
    longer = [item for item in words if item.startswith(f"{word}_")] if str(word) else []
    close = longer or difflib.get_close_matches(str(word), words, n=1)
    return meant(close) if close else ""


def meant(words: Sequence[str]) -> str:
    """Return ` Did you mean 'x' or 'y'?` for the first of *words*."""
    return f" Did you mean {' or '.join(map(repr, words[:MOST_NEAR]))}?"


def suggestion(word: object, legal: Iterable[object], what: str) -> str:
    """Return ` Did you mean 'x'?` for the nearest of *legal*, or the list of them if none is near."""
    words = [str(item) for item in legal]
    if hint := near(word, words):
        return hint
    if not words:
        return " There are none."
    more = f", ... ({len(words)} in all)" if len(words) > MOST_LISTED else ""
    return f" {what}: {', '.join(words[:MOST_LISTED])}{more}."


def unknown(name: str, known: Iterable[str], what: str) -> str:
    """Return the sentence about a name that is not among *known*, with the nearest known name."""
    return f"no such {what}.{suggestion(name, known, 'Known')}"


def counted(number: int, word: str) -> str:
    """Return a number and its word, in the plural unless the number is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def shown_path(path: Path) -> str:
    """Return *path* as messages print it: relative to the working directory where it lies below."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow symbolic links
    here = Path.cwd()
    return absolute.relative_to(here).as_posix() if absolute.is_relative_to(here) else str(absolute)


def wrote(*paths: Path) -> str:
    """Return the lines that name the files that a command wrote."""
    return "".join(f"wrote {shown_path(path)}\n" for path in paths)


def visible(text: str) -> str:
    """Return *text* with characters escaped that control a terminal, break XML or hide others; lines and tabs stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def obeyed_by_none(text: str) -> str:
    """Return *text* as `visible` does, with a mark before each line that GitHub's or Azure's runner would obey."""
    return _COMMANDS.sub("| ", visible(text))


def told(text: str) -> str:
    """Return *text* for an error message: escaped as by `visible`, without CI commands, with bounded lines."""
    shown = obeyed_by_none(text)
    if len(shown) <= LONGEST_LINE:
        return shown
    return "\n".join(
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... ({len(line):,} characters)"
        for line in shown.split("\n")
    )


def in_markdown(text: str) -> str:
    """Return *text* on one line, as it reads in markdown: 2**14 is a power and not bold type. Code spans stay."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if place % 2 else part.replace("**", r"\*\*") for place, part in enumerate(parts))
