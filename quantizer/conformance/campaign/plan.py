"""The work of a campaign: targets, examples and a seed, cut into units that any worker can run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, ValidationError, convert

from quantizer.conformance.setup.options import Options
from quantizer.core.case_file import refuse_unreleased
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.reading import Readable, one_line

PLANNED = Readable("the plan of a campaign", 1 << 26, CaseError, "Name another folder.")
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
VERSION = 2
"""Version 1: each example is a case with a different structure."""
BATCH = 64
"""The number of examples of one structure: four ranges of sixteen data sets, if it has an axis to stack them along."""
UNIT = 4 * BATCH
"""The largest number of examples of a unit, all of one target."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides which cases run. Two runs of one plan run the same cases."""

    targets: tuple[str, ...]
    """Names of targets, `op-scheme-platform`."""
    examples: Count | None
    """The number of data sets; None: until the time is over."""
    seed: int = 0
    engine: str = "builtin"
    specs: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    version: int = VERSION
    """How cases follow from the seed."""

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name the plan."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """Return the plan as one line."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str, where: str) -> Plan:
        """Read the output of `to_json`; CaseError with *where* if it is not valid."""
        raw = PLANNED.parsed(text, where)
        refuse_unreleased(raw, where)
        try:
            return convert({"version": 1, **raw} if isinstance(raw, dict) else raw, Plan)
        except (ValidationError, UnicodeEncodeError) as err:
            raise CaseError(f"{where}: not the plan of a campaign: {one_line(err)}. Name another folder.") from None

    def options(self) -> Options:
        """Return the options with which a session of the plan is opened."""
        return Options(
            root=Path.cwd(),
            engine=self.engine,
            specs=tuple(map(Path, self.specs)),
            plugins=tuple(map(Path, self.plugins)),
        )

    def units(self) -> Iterator[Unit]:
        """Yield the units in order. Targets alternate, so that all have equal shares whenever the run stops."""
        if not self.targets:
            raise UnsupportedError("campaign: no target is left. Ask for less, or for others.")
        each, number = self._each(), 0
        while (left := each if self.examples is None else min(each, self.examples - number * each)) > 0:
            yield Unit(number, self.targets[number % len(self.targets)], left)
            number += 1

    def _each(self) -> int:
        """Return the number of examples in a unit: whole batches, but few enough that each target gets a share."""
        if self.examples is None:
            return UNIT
        # examples per target in batches, rounded up
        return min(UNIT, BATCH * -(-self.examples // (BATCH * len(self.targets))))


@dataclass(frozen=True)
class Unit:
    """Some examples of one target. The unit's number decides its cases."""

    number: int
    target: str
    examples: int
