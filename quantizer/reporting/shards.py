"""Divides a run into shards, and merges shards into the same bytes as one run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.facts import Facts, FunctionFacts, SpecFacts
from quantizer.core.record import Record
from quantizer.reporting.complete_run import read_complete_run
from quantizer.reporting.store import read_timings

MOST = 10_000
OWN = ("shard", "specs", "functions", "items", "left_out", "exit", "lacks", "digests")
"""The facts of a run that differ from shard to shard."""
_FORM = re.compile(r"(\d{1,5})/(\d{1,5})")


@dataclass(frozen=True)
class Shard:
    """The items of one of *count* jobs; *index* counts from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def holds(self, item: str) -> bool:
        """Return whether *item* is in this shard.

        A hash of its name decides, so that new items do not move old ones.
        """
        digest = hashlib.sha256(item.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


def read_shard(text: str, where: str) -> Shard:
    """Read `K/N`; UnsupportedError unless 1 <= K <= N <= `MOST`."""
    found = _FORM.fullmatch(text)
    # an impossible shard, which the next line rejects
    shard = Shard(int(found[1]), int(found[2])) if found else Shard(0, 0)
    if not 1 <= shard.index <= shard.count <= MOST:
        raise UnsupportedError(f"{where}: must be K/N with 1 <= K <= N <= {MOST}, such as 1/3, got {text!r}.")
    return shard


@dataclass(frozen=True)
class Whole:
    """A complete run, merged from its shards."""

    records: tuple[Record, ...]
    facts: Facts
    seconds: dict[str, float]


def merge(folders: Sequence[Path]) -> Whole:
    """Return the run whose shards are in *folders*.

    CaseError, with the folder, if a shard is incomplete, duplicate, missing, of another run or not a shard, or if a
    record belongs to another shard.
    """
    read = [(folder, *_shard_of(folder)) for folder in folders]
    if not read:
        raise CaseError("no shard is named. Name the folder of every shard.")
    _check_complete([(folder, shard) for folder, shard, *_ in read])
    records: list[Record] = []
    seconds: dict[str, float] = {}
    specs: dict[str, tuple[Path, SpecFacts]] = {}
    first, _, whole, _ = read[0]
    for folder, shard, facts, own in read:
        _check_same(first, whole, folder, facts)
        for op, spec in facts.specs.items():
            known = specs.setdefault(op, (folder, spec))
            if known[1] != spec:
                raise CaseError(f"{folder}: the spec of {op} differs from that in {known[0]}. Run both on one tree.")
        for record in own:
            if not shard.holds(record.id):
                raise CaseError(f"{folder}: item {record.id!r} does not belong to shard {shard}. Run the shard again.")
        records += own
        seconds |= read_timings(folder)
    if not records:
        raise CaseError(f"{first}: no shard has a record: nothing was checked. Select some items.")
    every = [facts for _, _, facts, _ in read]
    merged = whole.model_copy(
        update={
            "shard": "",
            "specs": {op: spec for op, (_, spec) in sorted(specs.items())},
            "functions": _functions(every),
            "items": sorted(item for facts in every for item in facts.items),
            "left_out": sorted(item for facts in every for item in facts.left_out),
            # 1 if any shard has a failure; other statuses are not complete runs
            "exit": max(facts.exit for facts in every),
        }
    )
    return Whole(tuple(sorted(records, key=lambda record: record.id)), merged, seconds)


def _functions(every: Sequence[Facts]) -> list[FunctionFacts]:
    """Return how each function of a plugin was judged: `judged` if any shard judged it."""
    found: dict[tuple[str, str], FunctionFacts] = {}
    for one in (one for facts in every for one in facts.functions):
        known = found.setdefault((one.name, one.origin), one)
        if known.standing != "judged" and one.standing == "judged":
            found[one.name, one.origin] = one
    return [*found.values()]


def _shard_of(folder: Path) -> tuple[Shard, Facts, list[Record]]:
    records, facts = read_complete_run(folder)
    if not facts.shard:
        raise CaseError(f"{folder}: is not a shard of a run. Name folders that `pytest --op-shard K/N` wrote.")
    return read_shard(facts.shard, f"{folder}: shard"), facts, records


def _check_complete(shards: Sequence[tuple[Path, Shard]]) -> None:
    first, one = shards[0]
    found: dict[int, Path] = {}
    for folder, shard in shards:
        if shard.count != one.count:
            raise CaseError(f"{folder}: is shard {shard}, and {first} is {one}. Name the shards of one run.")
        if shard.index in found:
            raise CaseError(f"{folder}: is shard {shard}, and so is {found[shard.index]}. Name every shard once.")
        found[shard.index] = folder
    missing = [str(index) for index in range(1, one.count + 1) if index not in found]
    if missing:
        shown = ", ".join(missing[:10]) + (" ..." if len(missing) > 10 else "")
        raise CaseError(f"shard {shown} of {one.count}: missing. Name the folder of every shard.")


def _check_same(first: Path, wanted: Facts, folder: Path, facts: Facts) -> None:
    """Raise CaseError if two shards were run differently; it names the first field in which they differ."""
    known, others = ({(one.name, one.origin) for one in one_run.functions} for one_run in (wanted, facts))
    if odd := sorted(known ^ others):
        here, there = (folder, first) if odd[0] in others else (first, folder)
        raise CaseError(
            f"{here}: its plugins have {odd[0][0]} ({odd[0][1]}), and those of {there} have not. Run again."
        )
    for name in Facts.model_fields:
        one, other = getattr(wanted, name), getattr(facts, name)
        if name not in OWN and one != other:
            said = f"{_short(other)}, and {_short(one)} in {first}"
            raise CaseError(
                f"{folder}: of another run: {name} is {said}. Run all shards on one tree, with the same options."
            )


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
