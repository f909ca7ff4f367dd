"""The smallest stored case of each failing item, as a page shows it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quantizer.core.case import Case
from quantizer.core.errors import CaseError
from quantizer.core.facts import Facts
from quantizer.core.record import Record
from quantizer.reporting.figures import printable
from quantizer.reporting.items import replay_arguments
from quantizer.reporting.store import REPLAY
from quantizer.reporting.tally import failing_checks

LONGEST = 4_000
"""The largest number of characters of a failure's text."""


@dataclass(frozen=True)
class Drawn:
    """A stored case that failed: its graph, and how to run it again."""

    item: str
    finding: str
    operands: tuple[tuple[str, str], ...]
    op: str
    attrs: str
    rerun: str
    text: str = ""
    """The text of the failure: element, values, terms, suspect."""


def failing_cases(folder: Path | None, records: Sequence[Record], facts: Facts | None, run: str) -> dict[str, Drawn]:
    """Return the smallest stored case of every failing item. *facts* and *run* complete its command line."""
    found: dict[str, Drawn] = {}
    if folder is None or not folder.is_dir():
        return found
    stored: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.glob("*-????????????.json")):
        # ITEM-DIGEST.json, with a digest of twelve characters
        stored[file.stem[:-13]].append(file)
    for record in records:
        if failing_checks(record) and (path := _replay_of(record, stored.get(record.id, ()))):
            found[record.id] = _read_drawn(path, record, replay_arguments(record, facts), run)
    return found


def _replay_of(record: Record, files: Sequence[Path]) -> Path | None:
    """Return the replay file whose digest the failure names. Every failed item writes one for its smallest case."""
    named = [path for path in files if path.stem[-12:] in record.failure]
    return next(iter(named or files), None)


def _read_drawn(path: Path, record: Record, arguments: str, run: str) -> Drawn:
    raw = REPLAY.json_of(path, str(path))
    if not isinstance(raw, dict) or "case" not in raw:
        raise CaseError(f"{path}: holds no case. Name the folder of a run as pytest wrote it.")
    case = Case.from_dict(raw["case"], str(path))
    attrs = ", ".join(f"{name}={list(v) if isinstance(v, tuple) else v}" for name, v in case.attrs.items())
    replay = f"{run}/{path.parent.name}/{path.name}" if run else f"{path.parent.name}/{path.name}"
    return Drawn(
        item=record.id,
        finding=printable(str(raw.get("finding", ""))),
        operands=tuple((name, " x ".join(map(str, shape)) or "scalar") for name, shape in case.shapes.items()),
        op=case.op,
        attrs=attrs + (f", then {case.activation}" if case.activation != "none" else ""),
        rerun=f"quantizer case replay {shlex.quote(replay)}{arguments}",
        text="\n".join(printable(line) for line in str(raw.get("text", ""))[:LONGEST].splitlines()),
    )
