"""Where a run is kept: records.jsonl and summary.json, timings beside them, and baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from quantizer.core.errors import CaseError
from quantizer.core.files import replace_files
from quantizer.core.record import CheckRecord, Record, read_records

RECORDS = "records.jsonl"
SUMMARY = "summary.json"
TIMINGS = "timings.jsonl"


def write_run(directory: Path, records: Iterable[Record], summary: Mapping[str, object]) -> None:
    """Write a run into *directory*: the same records give the same bytes in any order; whole files or nothing."""
    contents = {directory / RECORDS: _lines(records), directory / SUMMARY: _json(summary, indent=2) + "\n"}
    replace_files(contents, CaseError)


def write_timings(directory: Path, seconds: Mapping[str, float]) -> None:
    """Write how long each item took, in seconds, beside the records and outside every equality."""
    rows = ({"id": item, "seconds": seconds[item]} for item in sorted(seconds))
    replace_files({directory / TIMINGS: "".join(_json(row) + "\n" for row in rows)}, CaseError)


def write_baseline(path: Path, records: Iterable[Record]) -> None:
    """Write what later runs are compared with: the records without the text of their failures."""
    replace_files({path: _lines(replace(record, failure="") for record in records)}, CaseError)


def read_run(path: Path) -> list[Record]:
    """Read a records file, or the one in a directory, sorted by id; CaseError names file, line and field."""
    file = path
    if path.is_dir():
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


def _lines(records: Iterable[Record]) -> str:
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
