"""The placement of a call's operands in memory, if the judge asks for another one than usual."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ANYHOW = "anyhow"
"""Operands are placed as usual, and the process does not compare codes in other memory: the judge does so itself."""
_ASKED: ContextVar[str] = ContextVar("quantizer_placement", default="")


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Request a placement for calls of plugins' functions: ANYHOW, a layout of `memory.PLACES`, or "" (usual)."""
    token = _ASKED.set(place)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked_place() -> str:
    """Return the placement that the caller's context requested."""
    return _ASKED.get()
