"""The list of all faults that the gate must find."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from quantizer.conformance.faults.arithmetic_faults import ARITHMETIC
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.grid_faults import GRIDS
from quantizer.conformance.faults.movement_faults import MOVEMENTS
from quantizer.conformance.faults.norm_faults import NORMALISATIONS
from quantizer.conformance.faults.structure_faults import ATTRIBUTES, FLOATS, RULES, STATE, TABLES, TILES
from quantizer.core.rooms import loaded, rooms
from quantizer.core.spec import Spec


@functools.cache
def catalogue() -> tuple[Fault, ...]:
    """Return every fault, those of rooms included, in the order in which a matrix lists them."""
    of_rooms = [fault for room in rooms() if room.faults for fault in loaded(room.faults)]
    return (
        *(*ARITHMETIC, *ATTRIBUTES, *MOVEMENTS, *TABLES, *NORMALISATIONS, *TILES, *RULES, *STATE),
        *(*of_rooms, *FLOATS, *GRIDS),
    )


def pairs(specs: Iterable[Spec]) -> list[tuple[Fault, str]]:
    """Return every fault with every operator that it concerns, in the order of the catalogue."""
    known = list(specs)
    return [(fault, spec.op) for fault in catalogue() for spec in known if fault.concerns(spec)]
