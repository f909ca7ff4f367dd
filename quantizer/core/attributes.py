"""Attributes as the numbers that an operator's spec says they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def whole(attrs: Mapping[str, object], name: str, default: int | None = None) -> int:
    """Return the integer attribute *name*; *default* where it is absent."""
    value: Any = attrs[name] if default is None else attrs.get(name, default)
    return int(value)


def real(attrs: Mapping[str, object], name: str, default: float | None = None) -> float:
    """Return the real attribute *name*; *default* where it is absent."""
    value: Any = attrs[name] if default is None else attrs.get(name, default)
    return float(value)
