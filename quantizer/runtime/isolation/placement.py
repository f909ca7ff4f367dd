"""How the process of plugins places the operands of a call, where the judge does not ask for the usual comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ANYHOW = "anyhow"
"""Operands lie as usual, and codes in other memory need not be the same: the judge asks for them itself."""
_ASKED: ContextVar[str] = ContextVar("quantizer_placement", default="")


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Ask for *place* in calls of plugins' functions: ANYHOW, a layout of `memory.PLACES`, or "" as usual."""
    token = _ASKED.set(place)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked_place() -> str:
    """Return the place that the calling code asks for."""
    return _ASKED.get()
