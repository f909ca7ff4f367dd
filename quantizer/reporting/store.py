"""Where a run is kept: records.jsonl, summary.json and run.json, timings beside them, and baselines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quantizer.core.errors import CaseError
from quantizer.core.files import is_file, is_folder, replace_files
from quantizer.core.record import CheckRecord, Record, read_records

if TYPE_CHECKING:
    from quantizer.core.facts import Facts

RECORDS = "records.jsonl"
SUMMARY = "summary.json"
FACTS = "run.json"
TIMINGS = "timings.jsonl"
FAILURES = "failures"
"""Folder of the replay files of a run."""


def write_run(
    directory: Path, records: Iterable[Record], summary: Mapping[str, object], facts: Facts | None = None
) -> None:
    """Write a run into *directory*: the same records give the same bytes in any order; whole files or nothing.

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
    return [*(path / name for name in (RECORDS, SUMMARY, FACTS, TIMINGS)), *(path / FAILURES).glob("*.json")]


def replay_files(directory: Path) -> dict[str, bytes]:
    """Return name -> content of the replay files of a run."""
    try:
        return {path.name: path.read_bytes() for path in sorted((directory / FAILURES).glob("*.json"))}
    except OSError as err:
        raise CaseError(f"{directory / FAILURES}: {_reason(err)}.") from None


def write_timings(directory: Path, seconds: Mapping[str, float]) -> None:
    """Write how long each item took, in seconds, beside the records and outside every equality."""
    rows = ({"id": item, "seconds": seconds[item]} for item in sorted(seconds))
    replace_files({directory / TIMINGS: "".join(_json(row) + "\n" for row in rows)}, CaseError)


def write_baseline(path: Path, records: Iterable[Record]) -> None:
    """Write what later runs are compared with: the records without the text of their failures."""
    replace_files({path: record_lines(replace(record, failure="") for record in records)}, CaseError)


def read_run(path: Path) -> list[Record]:
    """Read a records file, or the one in a directory, sorted by id; CaseError names file, line and field."""
    file = path
    if is_folder(path):
        file = path / RECORDS
        if not file.exists():
            raise CaseError(f"{path}: holds no {RECORDS}. Name the directory of a run, or a records file.")
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError as err:
        raise CaseError(f"{file}: byte {err.start} is not UTF-8. A records file has one JSON object a line.") from None
    except OSError as err:
        raise CaseError(f"{file}: {_reason(err)}. Name the directory of a run, or a records file.") from None
    return _parse(text.split("\n"), str(file))


def read_run_facts(path: Path) -> Facts | None:
    """Read what a run says of itself; None where *path* is a records file or was written without; CaseError names it."""
    from quantizer.core.facts import read_facts

    file = path / FACTS
    if not is_file(file):
        return None
    try:
        return read_facts(file.read_text(encoding="utf-8"), str(file))
    except UnicodeDecodeError as err:
        raise CaseError(f"{file}: byte {err.start} is not UTF-8. Run again; pytest writes it.") from None
    except OSError as err:
        raise CaseError(f"{file}: {_reason(err)}.") from None


def read_timings(directory: Path) -> dict[str, float]:
    """Return item -> seconds of a run; empty where it was not timed."""
    file = directory / TIMINGS
    if not is_file(file):
        return {}
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return {str(row["id"]): float(row["seconds"]) for row in rows}
    except OSError as err:
        raise CaseError(f"{file}: {_reason(err)}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CaseError(f"{file}: holds no timings. Remove it, or run again.") from None


def read_kills(path: Path) -> dict[str, tuple[int, int]]:
    """Return operator -> (faults killed, faults with an effect) from what `quantizer faults --json` wrote."""
    try:
        pairs = json.loads(path.read_text(encoding="utf-8"))["pairs"]
        found: dict[str, tuple[int, int]] = {}
        for pair in pairs:
            if pair["outcome"] in ("killed", "survives"):
                killed, planted = found.get(pair["op"], (0, 0))
                found[pair["op"]] = (killed + (pair["outcome"] == "killed"), planted + 1)
    except OSError as err:
        raise CaseError(f"{path}: {_reason(err)}. Name what `quantizer faults --json` wrote.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CaseError(f"{path}: is no kill matrix. Name what `quantizer faults --json` wrote.") from None
    return found


def _parse(lines: list[str], where: str) -> list[Record]:
    reader = read_records(lines, where)
    found: dict[str, tuple[int, Record]] = {}
    for number in (number for number, line in enumerate(lines, start=1) if line.strip()):
        place = f"{where}:{number}"
        record = next(reader)
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
        holes=tuple(sorted(set(record.holes))),
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
