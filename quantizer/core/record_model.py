"""Schema of a record in a file; errors name the field."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from quantizer.core.case_file import read_model
from quantizer.core.model import Model
from quantizer.core.record import CheckRecord, Record


def _real(value: object) -> object:
    match value:
        case "inf":
            return math.inf
        # Python's json reads Infinity and NaN, which are not JSON
        case float() if not math.isfinite(value):
            raise ValueError("must be finite. Write the string inf where it is infinite")
        case _:
            return value


Real = Annotated[float, BeforeValidator(_real)]
Ratio = Annotated[Real, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class _CheckModel(Model):
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
    reasons: list[str] = []

    def to_check(self) -> CheckRecord:
        return CheckRecord(**{**dict(self), "reasons": tuple(self.reasons)})


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
    isa: str = ""
    cases: Count = 0
    data_sets: Count = 0
    checks: dict[str, _CheckModel] = {}
    coverage: list[str] = []
    gaps: list[str] = []
    metrics: dict[str, Real] = {}
    failure: str = ""

    def to_record(self) -> Record:
        plain = dict(self)
        del plain["version"]
        plain["checks"] = {name: check.to_check() for name, check in self.checks.items()}
        return Record(**{**plain, "coverage": tuple(self.coverage), "gaps": tuple(self.gaps)})


def read_record(raw: object, place: str) -> Record:
    """Return the record that *raw* holds; CaseError names *place* and every field that is wrong."""
    return read_model(_RecordModel, raw, place).to_record()
