"""The faults that the gate must find."""

from __future__ import annotations

from collections.abc import Iterable

from quantizer.conformance.faults.arithmetic_faults import ARITHMETIC
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.grid_faults import GRIDS
from quantizer.conformance.faults.movement_faults import MOVEMENTS
from quantizer.conformance.faults.norm_faults import NORMALISATIONS
from quantizer.conformance.faults.structure_faults import ATTRIBUTES, FILES, FLOATS, RULES, STATE, TABLES, TILES
from quantizer.core.spec import Spec

CATALOGUE: tuple[Fault, ...] = (
    *ARITHMETIC, *ATTRIBUTES, *MOVEMENTS, *TABLES, *NORMALISATIONS, *TILES, *RULES, *STATE, *FILES, *FLOATS, *GRIDS,
)  # fmt: skip


def pairs(specs: Iterable[Spec]) -> list[tuple[Fault, str]]:
    """Return every fault with every operator that it concerns, in the order of the catalogue."""
    known = list(specs)
    return [(fault, spec.op) for fault in CATALOGUE for spec in known if fault.concerns(spec)]
