"""Output of commands: foreign names in it cannot control a terminal or act as CI commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from quantizer.core.wording import obeyed_by_none, visible


class Shown:
    """A stream that escapes control and unencodable characters, and marks lines that a CI runner would obey."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write *text*, made harmless."""
        return self._encoded(obeyed_by_none(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of *lines*, escaped so that no terminal or runner obeys it."""
        for line in lines:
            self.write(line)

    def command(self, text: str) -> int:
        """Write a line that the CI runner must obey."""
        return self._encoded(visible(text))

    def _encoded(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        # a console of another encoding would raise an error for characters that it lacks
        return self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def write_commands(commands: Iterable[str]) -> None:
    """Write commands to a CI system on standard output, one per line. All other output there is escaped."""
    out = sys.stdout
    for command in commands:
        (out.command if isinstance(out, Shown) else out.write)(f"{command}\n")
