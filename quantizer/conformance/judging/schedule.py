"""Selects a case's checks: in the gate profile, expensive checks that find little run on a sample of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from quantizer.conformance.generation.builder import tile_bin
from quantizer.conformance.generation.hashing import key, sample_number
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.profiles import PROFILES
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.verdict import CHECKS, SAMPLED
from quantizer.tiling.windows import tileable_axes

Where = Literal["first", "examples", "structure", "tiles"]
"""first: the first case of a target; examples: those that its spec names; structure: the first of successive cases with
one structure; tiles: a case with a class of tiles that the check has not seen on the target, or has not seen cut the
output."""


@dataclass(frozen=True)
class Sample:
    """The cases on which an expensive check runs."""

    one_in: int
    """The check runs on one in this many of the cases that `always` does not select."""
    always: tuple[Where, ...] = ("first", "examples")
    once: bool = False
    """The check runs once per target on cases with equal shapes, attributes and activation, as only these matter."""


SCHEDULE: Mapping[str, Sample] = {
    "exact": Sample(8),
    "tiled": Sample(4, always=("first", "examples", "tiles")),
    "round_trip": Sample(8, once=True),
    "pipeline": Sample(8, always=("first",)),
    "properties": Sample(8),
    "repeat": Sample(4),
}
"""Checks that the gate profile samples; others run on every case. `quantizer faults --schedule` measures the loss."""
OF_BATCHES: Mapping[str, Sample] = {
    "exact": Sample(8, always=("structure",)),
    "tiled": Sample(4, always=("structure", "tiles")),
    "round_trip": Sample(1, always=(), once=True),
    "properties": Sample(8, always=("structure",)),
    "repeat": Sample(4, always=("structure",)),
}
"""Checks that a campaign samples: each judges every structure once, and the gate's share of other cases."""
COSTLY = {name: SCHEDULE[name] for name in SAMPLED}
"""The checks that every profile samples."""


def schedule(target: Target, options: Options) -> Schedule:
    """Return *target*'s schedule: all of SCHEDULE if the gate profile judges functions by every check.

    A check requested by name runs on every case, and so do the checks of a real engine, in which no fault was planted.
    """
    sampled = PROFILES[options.profile].sampled and options.real is None and set(options.checks) == set(CHECKS)
    return Schedule(target, options.checks, SCHEDULE if sampled else COSTLY)


class Schedule:
    """Schedules the checks of one target's cases, in their order; only the cases decide it."""

    def __init__(self, target: Target, checks: Sequence[str], samples: Mapping[str, Sample] = SCHEDULE) -> None:
        self._target = target
        self._checks = tuple(checks)
        self._samples = samples
        self._cases = 0
        self._structure: object = None
        self._seen: dict[str, set[object]] = {name: set() for name in samples}

    def checks(self, case: Case) -> tuple[str, ...]:
        """Return the checks that *case*, the next of the target, runs."""
        number = sample_number(case)
        kinds: set[Where] = set()
        if self._cases == 0:
            kinds.add("first")
        if self._cases < len(self._target.spec.examples):
            kinds.add("examples")
        structure = (case.shapes, case.attrs, case.activation, case.order, case.tiles)
        if structure != self._structure:
            kinds.add("structure")
        self._cases, self._structure = self._cases + 1, structure
        return tuple(name for name in self._checks if self._runs(name, case, number, kinds))

    def _runs(self, name: str, case: Case, number: int, kinds: set[Where]) -> bool:
        sample = self._samples.get(name)
        if sample is None:
            return True
        seen, shown = self._seen[name], self._shown(sample, case)
        asked = not kinds.isdisjoint(sample.always) or is_sampled(number, name, sample)
        # a structure that the check has seen is not worth a second run
        if sample.once:
            asked &= not shown <= seen
        # a new class of tiles always runs
        elif "tiles" in sample.always:
            asked |= not shown <= seen
        if asked:
            seen |= shown
        return asked

    def _shown(self, sample: Sample, case: Case) -> set[object]:
        """Return the keys by which a repeated case is recognised: its structure, or its classes of tiles."""
        if sample.once:
            return {(tuple(case.shapes.items()), tuple(case.attrs.items()), case.activation)}
        if "tiles" in sample.always and case.tiles.sizes:
            spec = self._target.spec
            axes = tileable_axes(spec, case.shapes, case.attrs)
            kinds = tile_bin(case.tiles, axes, spec)
            # one tile of the whole output has a class, too, but cuts nothing
            cuts = any(size < axes[name] for name, size in case.tiles.sizes.items())
            return {*kinds, *((kind, "cuts") for kind in kinds if cuts)}
        return set()


def is_sampled(number: int, check: str, sample: Sample) -> bool:
    """Return whether case *number* is in the sample of *check*; each check has its own sample."""
    return (number if check in SAMPLED else key(number, check)) % sample.one_in == 0
