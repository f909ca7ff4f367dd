"""Applies the readings requested for a run to its library (ADR 0027). Collection imports this, so it loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quantizer.core.errors import UnsupportedError
from quantizer.core.library import Library
from quantizer.core.readings import READINGS
from quantizer.core.wording import suggestion


def with_readings(library: Library, asked: Iterable[str]) -> Library:
    """Return *library* with the readings of `--op-reading`; UnsupportedError names the unknown ones."""
    specs = dict(library.specs)
    for text in asked:
        place, colon, reading = text.partition(":")
        op, slash, platform = place.partition("/")
        if not (colon and slash):
            rule = "write OPERATOR/PLATFORM:READING, such as add/ideal:rounded_once"
            raise UnsupportedError(f"--op-reading={text}: {rule}.")
        for name, known in ((op, library.specs), (platform, library.platforms), (reading, READINGS)):
            if name not in known:
                known_ones = suggestion(name, known, "Known")
                raise UnsupportedError(f"--op-reading={text}: {name!r}: no such name.{known_ones}")
        specs[op] = specs[op].model_copy(update={"readings": {**specs[op].readings, platform: reading}})
    return replace(library, specs=specs)
