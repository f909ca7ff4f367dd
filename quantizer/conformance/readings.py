"""Which numbers each reading takes instead of the platform's, and the readings that a run was asked for (ADR 0025)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from quantizer.conformance.kinds import NOTHING, Kind
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import Library
from quantizer.core.readings import READINGS
from quantizer.core.wording import suggestion


def takes(reading: str | None, declared: Kind, provided: Kind) -> bool:
    """Return whether *reading* lets a rule provide numbers of kind *provided* where the platform's are *declared*."""
    allowed = None if reading is None else _TAKES.get(reading)
    return allowed is not None and allowed(declared, provided)


def with_readings(library: Library, asked: Iterable[str]) -> Library:
    """Return *library* with the readings of `--op-reading`; UnsupportedError names what is unknown."""
    specs = dict(library.specs)
    for text in asked:
        place, colon, reading = text.partition(":")
        op, slash, platform = place.partition("/")
        if not (colon and slash):
            rule = "write OPERATOR/PLATFORM:READING, such as add/compass:exact_sums"
            raise UnsupportedError(f"--op-reading={text}: {rule}.")
        for name, known in ((op, library.specs), (platform, library.platforms), (reading, READINGS)):
            if name not in known:
                known_ones = suggestion(name, known, "Known")
                raise UnsupportedError(f"--op-reading={text}: {name!r}: no such name.{known_ones}")
        specs[op] = specs[op].model_copy(update={"readings": {**specs[op].readings, platform: reading}})
    return replace(library, specs=specs)


def _mean_of_its_own(declared: Kind, provided: Kind) -> bool:
    own = provided == NOTHING or (provided.multiplier == "multiplier_shift" and not provided.tables)
    return declared.multiplier == "area_multiplier" and own


def _fewer_numbers(declared: Kind, provided: Kind) -> bool:
    same = (declared.multiplier, declared.tables, declared.fused)
    return same == (provided.multiplier, provided.tables, provided.fused) and provided.numbers < declared.numbers


_TAKES: Mapping[str, Callable[[Kind, Kind], bool]] = {
    "own_mean": _mean_of_its_own,
    "real_attributes": _fewer_numbers,
    "rounded_once": lambda _, provided: provided == NOTHING,
}
"""Reading -> (the platform's kind, what was provided) -> whether it may be provided."""
