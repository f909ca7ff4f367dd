"""Adapts the platforms of a run to the version of the real engine."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from quantizer.core.library import Library
from quantizer.runtime.engines.catalogue import Chosen


def at_release(library: Library, real: Chosen | None) -> Library:
    """Return *library* with the settings of the version of *real* on the platforms that it computes.

    Without a real engine, built-in functions and plugins compute the platforms as declared.
    """
    if real is None:
        return library
    computed = [name for name in real.entry.variant_of_platform if name in library.platforms]
    changed = {name: library.platforms[name].at_release(real.entry.name, real.version) for name in computed}
    return replace(library, platforms=MappingProxyType({**library.platforms, **changed}))
