"""A record: what a run found for one item, as one JSON line; reports and gates are made of records only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Required

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from quantizer.core.case_file import read_model
from quantizer.core.model import Model

VERSION = 1


@dataclass(frozen=True)
class CheckRecord:
    """One check over all cases of an item; ratios are the worst seen."""

    passed: int = 0
    failed: int = 0
    mistrusted: int = 0
    overflow: int = 0
    defects: int = 0
    holes: int = 0
    elements: int = 0
    vacuous: int = 0
    ratio: float = 0.0
    width: float = 0.0
    reasons: tuple[str, ...] = ()
    """Why the check could not be made, where it could not."""


@dataclass(frozen=True)
class Record:
    """One item of a run. No timings, no wall-clock: the same run writes the same bytes."""

    id: str
    op: str
    kind: str
    outcome: str
    scheme: str = ""
    platform: str = ""
    engine: str = ""
    processor: str = ""
    """Of an item that judges values: what the engine's kernels, and torch's, were chosen by."""
    cases: int = 0
    checks: Mapping[str, CheckRecord] = field(default_factory=dict)
    coverage: tuple[str, ...] = ()
    """Attribute bins, data sets, tile bins and orders that some case reached."""
    holes: tuple[str, ...] = ()
    """Coverage that was asked for and not reached."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """SQNR and the like: recorded, never decisive."""
    failure: str = ""
    """First line of the failure, and the digest of its smallest case."""

    def to_json(self) -> str:
        """Return the record as one line with sorted keys."""
        return json.dumps(_plain(self), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _plain(record: Record) -> dict[str, Any]:
    checks = {
        name: {
            key: _number(value) if isinstance(value, float) else list(value) if isinstance(value, tuple) else value
            for key, value in vars(check).items()
            if value or key == "passed"
        }
        for name, check in record.checks.items()
    }
    plain = {key: value for key, value in vars(record).items() if value or key in ("id", "op", "kind", "outcome")}
    plain |= {"checks": checks} if checks else {}
    for key in ("coverage", "holes"):
        if key in plain:
            plain[key] = list(plain[key])
    if "metrics" in plain:
        plain["metrics"] = {key: _number(value) for key, value in record.metrics.items()}
    return plain | {"version": VERSION}


def _real(value: object) -> object:
    match value:
        case "inf":
            return math.inf
        case float() if not math.isfinite(value):
            raise ValueError("must be finite. Write the string inf where it is infinite")
        case _:
            return value


Real = Annotated[float, BeforeValidator(_real)]
Ratio = Annotated[Real, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


_STRICT = ConfigDict(extra="forbid", strict=True)


class _CheckModel(Model):
    passed: Count = 0
    failed: Count = 0
    mistrusted: Count = 0
    overflow: Count = 0
    defects: Count = 0
    holes: Count = 0
    elements: Count = 0
    vacuous: Count = 0
    ratio: Ratio = 0.0
    width: Ratio = 0.0
    reasons: list[str] = []


class _RecordModel(Model):
    version: Literal[1]
    id: Annotated[str, Field(min_length=1)]
    op: str
    kind: str
    outcome: str
    scheme: str = ""
    platform: str = ""
    engine: str = ""
    processor: str = ""
    cases: Count = 0
    checks: dict[str, _CheckModel] = {}
    coverage: list[str] = []
    holes: list[str] = []
    metrics: dict[str, Real] = {}
    failure: str = ""


class _CheckDict(TypedDict, total=False):
    """What `_CheckModel` says, validated ten times as fast; the model writes the errors."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    passed: Count
    failed: Count
    mistrusted: Count
    overflow: Count
    defects: Count
    holes: Count
    elements: Count
    vacuous: Count
    ratio: Ratio
    width: Ratio
    reasons: list[str]


class _RecordDict(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    version: Required[Literal[1]]
    id: Required[Annotated[str, Field(min_length=1)]]
    op: Required[str]
    kind: Required[str]
    outcome: Required[str]
    scheme: str
    platform: str
    engine: str
    processor: str
    cases: Count
    checks: dict[str, _CheckDict]
    coverage: list[str]
    holes: list[str]
    metrics: dict[str, Real]
    failure: str


_RECORD = TypeAdapter(_RecordDict)


def read_records(lines: Iterable[str], where: str) -> Iterator[Record]:
    """Read what `to_json` wrote, a record a line; CaseError names line and field."""
    from quantizer.core.errors import CaseError

    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise CaseError(f"{place}: not JSON: {err}. A records file has one JSON object a line.") from None
        try:
            yield _record(_RECORD.validate_python(raw))
        except ValidationError:
            read_model(_RecordModel, raw, place)
            raise


def _record(found: _RecordDict) -> Record:
    checks = {name: _check(check) for name, check in found.get("checks", {}).items()}
    plain: dict[str, Any] = {**found, "checks": checks}
    del plain["version"]
    for name in ("coverage", "holes"):
        plain[name] = tuple(plain.get(name, ()))
    return Record(**plain)


def _check(found: Mapping[str, Any]) -> CheckRecord:
    reasons = found.get("reasons")
    return CheckRecord(**found) if reasons is None else CheckRecord(**{**found, "reasons": tuple(reasons)})
