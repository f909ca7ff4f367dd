"""A record: the result of one item as one JSON line. Reports and gates read records only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from quantizer.core.errors import CaseError

VERSION = 1

Count = Annotated[int, Meta(ge=0)]
Ratio = Annotated[float, Meta(ge=0)]


class CheckRecord(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Result of one check over all cases of an item; `ratio` and `width` are the largest of all cases."""

    passed: Count = 0
    failed: Count = 0
    mistrusted: Count = 0
    overflow: Count = 0
    defects: Count = 0
    inconclusive: Count = 0
    elements: Count = 0
    vacuous: Count = 0
    ratio: Ratio = 0.0
    width: Ratio = 0.0
    reasons: tuple[str, ...] = ()
    """Reasons why the check was inconclusive or a sum left its accumulator, and `id: reason` of exceptions that
    applied."""


class Record(Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag_field="version", tag=VERSION):
    """One item of a run. No timings, no wall-clock: the same run writes the same bytes."""

    id: Annotated[str, Meta(min_length=1)]
    op: str
    kind: str
    outcome: str
    scheme: str = ""
    platform: str = ""
    engine: str = ""
    processor: str = ""
    """The processor, in records up to version 0.1 only. Later runs have it in machine.json (ADR 0028)."""
    isa: str = ""
    """The instruction-set level to which a real engine was restricted, or `unpinned`."""
    cases: Count = 0
    data_sets: Count = 0
    """The number of data sets of all cases, counted because a stack holds several; 0 if each case has one."""
    checks: Mapping[str, CheckRecord] = {}
    coverage: tuple[str, ...] = ()
    """Attribute bins, data sets, tile bins and axis orders that at least one case reached."""
    gaps: tuple[str, ...] = ()
    """Requested coverage that was not reached."""
    metrics: Mapping[str, float] = {}
    """SQNR and similar figures: recorded, but they never decide a verdict."""
    failure: str = ""
    """First line of the failure, and the digest of its smallest case."""

    def to_json(self) -> str:
        """Return the record as one line with sorted keys."""
        return json.dumps(_plain(self), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _number(value: float) -> float | str:
    # JSON has no infinity
    return value if math.isfinite(value) else "inf"


def _plain(record: Record) -> dict[str, Any]:
    checks = {
        name: {
            key: _number(value) if isinstance(value, float) else list(value) if isinstance(value, tuple) else value
            for key, value in asdict(check).items()
            # zeros are left out, so that lines stay short; `passed` shows that the check ran
            if value or key == "passed"
        }
        for name, check in record.checks.items()
    }
    plain = {key: value for key, value in asdict(record).items() if value or key in ("id", "op", "kind", "outcome")}
    plain |= {"checks": checks} if checks else {}
    for key in ("coverage", "gaps"):
        if key in plain:
            plain[key] = list(plain[key])
    if "metrics" in plain:
        plain["metrics"] = {key: _number(value) for key, value in record.metrics.items()}
    return plain | {"version": VERSION}


_DECODER = Decoder(Record)
_LAST = f'"version":{VERSION}}}'
"""The end of every line with sorted keys. Lines are compared with it because the fast decoder does not check the
version."""
_LINE_END = f"{_LAST}\n".encode()
_UNRELEASED = '"engine":"own"'
"""Marks an unreleased record: the fast decoder would accept this engine's name, the slow one refuses it. Inside a text
its quotes would be escaped."""


def read_records(lines: Iterable[str], where: str) -> Iterator[Record]:
    """Read records, one per line, as `to_json` writes them; CaseError names line and field."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        yield read_line(line, f"{where}:{number}")


def read_plain(raw: bytes) -> list[Record] | None:
    """Return the records of a file if `to_json` wrote all of its lines; None if a line needs the slower reader."""
    lines = raw.count(b"\n")
    if raw.count(_LINE_END) != lines or not raw.endswith(_LINE_END) or _UNRELEASED.encode() in raw:
        return None
    try:
        found = _DECODER.decode_lines(raw)
    except (DecodeError, UnicodeError):
        return None
    return found if len(found) == lines else None


def read_line(line: str, place: str) -> Record:
    """Read one record; CaseError with *place* names the field that is wrong."""
    if line.endswith(_LAST) and _UNRELEASED not in line:
        try:
            return _DECODER.decode(line)
        except (DecodeError, UnicodeEncodeError):
            pass
    return _read_slowly(line, place)


def _read_slowly(line: str, place: str) -> Record:
    """Read a line that the fast decoder refused: a wrong line, an infinite number, or keys in another order."""
    # record_model describes `Record`, so it imports this module
    from quantizer.core.record_model import read_record

    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise CaseError(f"{place}: not JSON: {err}. A records file has one JSON object a line.") from None
    return read_record(raw, place)
