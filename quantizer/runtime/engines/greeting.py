"""The first message of a worker: its name, form, versions and capabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from quantizer.core.errors import FormatError
from quantizer.runtime.engines.serve import PROTOCOL

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
WORD = re.compile(r"[\w.+:/ -]{0,80}")
MOST = 1000
"""The largest number of names of a list."""


@dataclass(frozen=True)
class Greeting:
    """A system, its version, and the models that it accepts."""

    name: str
    version: str
    form: str
    """The form of models that it runs."""
    device: str = "cpu"
    isa: str = ""
    operators: tuple[str, ...] = ()
    """quantizer's names; empty: all that the form can express."""
    formats: tuple[str, ...] = ()
    """Formats of codes; empty: all that the form can express."""
    floats: bool = False
    """Whether it runs float models of the form too."""

    def told(self) -> dict[str, str | bool | list[str]]:
        """Return the greeting as plain data."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: [*value] if isinstance(value, tuple) else value for name, value in values}

    def differs(self, before: Greeting) -> str:
        """Return the first field that differs from *before*, with both values; empty if all are equal."""
        pairs = ((one.name, getattr(self, one.name), getattr(before, one.name)) for one in fields(self))
        return next((f"{name} {now!r}, was {was!r}" for name, now, was in pairs if now != was), "")


def greeting_of(header: Mapping[str, Any]) -> Greeting:
    """Return the greeting in a message; FormatError names the wrong field and its rule."""
    if header.get("protocol") != PROTOCOL:
        raise FormatError(f"a greeting of protocol {str(header.get('protocol'))[:20]}, must be {PROTOCOL}")
    words = {key: header.get(key, "") for key in ("name", "version", "form", "device", "isa")}
    for key, word in words.items():
        if not isinstance(word, str) or not WORD.fullmatch(word):
            raise FormatError(f"a greeting whose {key} is {str(word)[:40]!r}, must be a short text")
    lists = {key: header.get(key, []) for key in ("operators", "formats")}
    for key, names in lists.items():
        if (
            not isinstance(names, list)
            or len(names) > MOST
            or not all(isinstance(n, str) and NAME.fullmatch(n) for n in names)
        ):
            raise FormatError(f"a greeting whose {key} are not a list of names")
    if not isinstance(floats := header.get("floats", False), bool):
        raise FormatError("a greeting whose floats is neither true nor false")
    return Greeting(**words, operators=tuple(lists["operators"]), formats=tuple(lists["formats"]), floats=floats)
