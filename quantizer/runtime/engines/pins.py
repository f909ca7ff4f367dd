"""Environment variables that restrict an engine's libraries to an instruction-set level, and the sets that remain."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from quantizer.core.levels import HOST, UNPINNED, left_by
from quantizer.core.rooms import NONE, Pins, engines


def pins_of(backend: str) -> Pins:
    """Return the settings that pin *backend*. An engine without settings uses all instruction sets of the processor."""
    entry = engines().get(backend)
    return NONE if entry is None else entry.pins


def held_to(backend: str, level: str) -> str:
    """Return the level at which an engine runs if *level* is requested: `unpinned` if it has no settings."""
    return level if pins_of(backend).pins else UNPINNED


def variables(backend: str, level: str) -> dict[str, str]:
    """Return the environment variables that keep *backend* at *level* in a worker; empty for `host`."""
    if level == HOST:
        return {}
    return {pin.variable: pin.values[level] for pin in pins_of(backend).pins}


def instruction_sets(
    backend: str, level: str, available: Collection[str], environment: Mapping[str, str]
) -> frozenset[str]:
    """Return the instruction sets that *backend* may use at *level*: those of the processor, and those of each library.

    Sets of a library are named `library.set`. Without a pinned level, *environment* may limit them further.
    """
    left = left_by(level, available)
    set_to = {**environment, **variables(backend, level)}
    found = set(left)
    for pin in pins_of(backend).pins:
        most = pin.leaves.get(set_to.get(pin.variable, "").lower(), left)
        found |= {f"{pin.library}.{name}" for name in left & frozenset(most) if pin.library}
    return frozenset(found)


def running_variant(backend: str, variant: str, left: Collection[str]) -> str:
    """Return the variant that *backend* uses instead of *variant* on a processor with the instruction sets *left*."""
    provided = pins_of(backend).provided_on.get(variant)
    return variant if provided is None or provided[0] in left else provided[1]
