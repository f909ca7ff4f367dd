"""Version numbers of registered functions and of real systems."""

from __future__ import annotations

import re

from quantizer.core.errors import PluginError

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}")


def parse_version(text: str) -> tuple[int, ...]:
    """Return a version as numbers, so that 1.10 compares above 1.9."""
    if not _VERSION.fullmatch(str(text)):
        raise PluginError(f"version {str(text)[:40]!r}: must be numbers joined by dots, such as '1.0' or '2.10'.")
    parts = tuple(int(part) for part in str(text).split("."))
    # 1.0 and 1 are equal
    while len(parts) > 1 and parts[-1] == 0:
        parts = parts[:-1]
    return parts


def release_of(text: str) -> tuple[int, ...]:
    """Return the numbers with which a system's version begins; () if it begins with none.

    A development version counts as the release to which it leads.
    """
    found = _VERSION.match(text)
    return parse_version(found[0]) if found else ()
