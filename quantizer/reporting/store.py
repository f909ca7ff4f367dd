"""Reads and writes the files of a run: records.jsonl, summary.json, run.json, timings, and baselines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quantizer.core.errors import CaseError
from quantizer.core.files import is_file, is_folder, replace_files
from quantizer.core.reading import Readable
from quantizer.core.record import CheckRecord, Record, read_line, read_plain
from quantizer.reporting.machine import MACHINE

if TYPE_CHECKING:
    from quantizer.core.facts import Facts

RECORDS = "records.jsonl"
SUMMARY = "summary.json"
FACTS = "run.json"
TIMINGS = "timings.jsonl"
RUN = Readable("a records file", 1 << 30, CaseError, "Name the directory of a run, or a records file.")
SAID = Readable("facts of a run", 1 << 26, CaseError, "Run again; pytest writes it.")
TIMED = Readable("the timings of a run", 1 << 28, CaseError, "Remove it, or run again.")
KILLS = Readable("a kill matrix", 1 << 28, CaseError, "Name what `quantizer faults --json` wrote.")
REPLAY = Readable("a stored case", 1_000_000, CaseError)
LONGEST = 1e9
"""The largest valid time of an item, in seconds."""
FAILURES = "failures"
"""Folder of the replay files of a run."""


def write_run(
    directory: Path, records: Iterable[Record], summary: Mapping[str, object], facts: Facts | None = None
) -> None:
    """Write a run into *directory*, completely or not at all. The same records give the same bytes in any order.

    The facts name the digests of the other files, so that readers tell files of two runs apart.
    """
    contents = {RECORDS: record_lines(records), SUMMARY: _json(summary, indent=2) + "\n"}
    if facts is not None:
        digests = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in contents.items()}
        contents[FACTS] = facts.model_copy(update={"digests": digests}).to_json()
    replace_files({directory / name: content for name, content in contents.items()}, CaseError)


def run_files(path: Path) -> list[Path]:
    """Return the files that a run is read from: a records file, or those in a directory."""
    if not is_folder(path):
        return [path]
    return [*(path / name for name in (RECORDS, SUMMARY, FACTS, MACHINE, TIMINGS)), *(path / FAILURES).glob("*.json")]


def replay_files(directory: Path) -> dict[str, bytes]:
    """Return name -> content of the replay files of a run."""
    try:
        return {path.name: REPLAY.bytes_of(path, str(path)) for path in sorted((directory / FAILURES).glob("*.json"))}
    except OSError as err:
        raise CaseError(f"{directory / FAILURES}: {_reason(err)}.") from None


def write_timings(directory: Path, seconds: Mapping[str, float]) -> None:
    """Write the seconds of each item next to the records. Comparisons of runs ignore them."""
    rows = ({"id": item, "seconds": seconds[item]} for item in sorted(seconds))
    replace_files({directory / TIMINGS: "".join(_json(row) + "\n" for row in rows)}, CaseError)


def read_run(path: Path) -> list[Record]:
    """Read a records file, or the one in a directory, sorted by id; CaseError names file, line and field."""
    file = path
    if is_folder(path):
        file = path / RECORDS
        if not file.exists():
            raise CaseError(f"{path}: holds no {RECORDS}. Name the directory of a run, or a records file.")
    # fast, without places; a file with a mistake is read again line by line, to name it
    found = read_plain(RUN.bytes_of(file, str(file)))
    if found is None or len({record.id for record in found}) < len(found):
        return _parse(RUN.lines_of(file, str(file)), str(file))
    return sorted(found, key=lambda record: record.id)


def read_run_facts(path: Path) -> Facts | None:
    """Read the facts of a run; None if *path* is a records file or has no facts. CaseError names a broken file."""
    from quantizer.core.facts import read_facts

    file = path / FACTS
    if not is_file(file):
        return None
    return read_facts(SAID.text_of(file, str(file)), str(file))


def read_timings(directory: Path) -> dict[str, float]:
    """Return item -> seconds of a run; empty if it was not timed."""
    file = directory / TIMINGS
    if not is_file(file):
        return {}
    found: dict[str, float] = {}
    for number, line in TIMED.lines_of(file, str(file)):
        row = TIMED.parsed(line, f"{file}:{number}")
        item, seconds = (row.get("id"), row.get("seconds")) if isinstance(row, dict) else (None, None)
        # a bool is an int in Python
        measured = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= LONGEST
        if not isinstance(item, str) or not measured:
            raise CaseError(f"{file}:{number}: holds no timing of an item. Remove the file, or run again.")
        found[item] = float(seconds or 0)
    return found


def read_kills(path: Path) -> dict[str, tuple[int, int]]:
    """Return operator -> (faults found, faults with an effect) from the output of `quantizer faults --json`."""
    raw = KILLS.json_of(path, str(path))
    try:
        pairs = raw["pairs"]
        found: dict[str, tuple[int, int]] = {}
        for pair in pairs:
            if pair["outcome"] in ("killed", "survives"):
                killed, planted = found.get(pair["op"], (0, 0))
                found[pair["op"]] = (killed + (pair["outcome"] == "killed"), planted + 1)
    except (KeyError, TypeError):
        raise CaseError(f"{path}: is not a kill matrix. Name what `quantizer faults --json` wrote.") from None
    return found


def _parse(lines: Iterable[tuple[int, str]], where: str) -> list[Record]:
    found: dict[str, tuple[int, Record]] = {}
    for number, line in lines:
        place = f"{where}:{number}"
        record = read_line(line, place)
        if record.id in found:
            raise CaseError(
                f"{place}: id: {record.id!r} is already the id of line {found[record.id][0]}. "
                "A run has one record per item."
            )
        found[record.id] = (number, record)
    return [found[item][1] for item in sorted(found)]


def _sorted_sets(record: Record) -> Record:
    def check(value: CheckRecord) -> CheckRecord:
        return replace(value, reasons=tuple(sorted(set(value.reasons))))

    return replace(
        record,
        checks={name: check(value) for name, value in record.checks.items()},
        coverage=tuple(sorted(set(record.coverage))),
        gaps=tuple(sorted(set(record.gaps))),
    )


def record_lines(records: Iterable[Record]) -> str:
    """Return the text of records.jsonl: the same records give the same bytes in any order."""
    by_id: dict[str, Record] = {}
    for record in records:
        if record.id in by_id:
            raise CaseError(f"records: id: {record.id!r} is there twice. A run has one record per item.")
        by_id[record.id] = record
    return "".join(_sorted_sets(by_id[item]).to_json() + "\n" for item in sorted(by_id))


def _json(value: Mapping[str, object], *, indent: int | None = None) -> str:
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(value, sort_keys=True, indent=indent, separators=separators, allow_nan=False)


def _reason(err: OSError) -> str:
    return (err.strerror or str(err)).lower()
