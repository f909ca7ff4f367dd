"""Reads and writes files of stored cases: goldens, one per line, and replay files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantizer.conformance.stored.golden_review import Change, ChangeModel
from quantizer.core.case import VERSION, Case
from quantizer.core.case_file import read_model, refuse_later
from quantizer.core.errors import CaseError
from quantizer.core.files import replace_files
from quantizer.core.model import Model
from quantizer.core.reading import Readable

MAX_CODES = 256
MAX_FILE = 1 << 20
STORED = Readable(
    "a file of stored cases", MAX_FILE, CaseError, "Name a replay file (reports/out/failures/*.json) or a stored case."
)


class _GoldenModel(Model):
    case: dict[str, Any]
    codes: list[int]
    engine: str
    reason: str
    history: list[ChangeModel] = []


class _ReplayModel(Model):
    case: dict[str, Any]
    item: str = ""
    checks: list[str] = []
    finding: str = ""
    reason: str = ""
    text: str = ""
    """The text of the failure."""
    tensors: dict[str, dict[str, Any]] = {}
    """The values of the run, for a reader only. A replay computes them again."""


@dataclass(frozen=True)
class Golden:
    """A case with its expected codes, the engine that computed them, and the reason for their last change."""

    case: Case
    codes: tuple[int, ...]
    engine: str
    reason: str
    history: tuple[Change, ...] = ()
    """The changes in each update, the oldest first."""

    def to_line(self) -> str:
        """Return the golden as one line of JSON, as an operator's file of goldens stores it."""
        content = {"case": self.case.to_dict(), "codes": list(self.codes), "engine": self.engine, "reason": self.reason}
        if self.history:
            content["history"] = [change.to_dict() for change in self.history]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Replay:
    """A case that once failed, and why it is kept."""

    case: Case
    checks: tuple[str, ...]
    finding: str
    reason: str
    path: Path


def read_goldens(path: Path) -> list[Golden]:
    """Read one operator's goldens; CaseError names file, line and field."""
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        where = f"{path}:{number}"
        model = read_model(_GoldenModel, _with_case(_json(line, where), where), where)
        if len(model.codes) > MAX_CODES:
            raise CaseError(f"{where}: codes: {len(model.codes)} of them; a golden holds at most {MAX_CODES}.")
        history = tuple(Change(**dict(entry)) for entry in model.history)
        found.append(Golden(Case.from_dict(model.case, where), tuple(model.codes), model.engine, model.reason, history))
    return found


def read_replay(path: Path) -> Replay:
    """Read a replay file; CaseError names file and field."""
    where = str(path)
    model = read_model(_ReplayModel, _with_case(_json(_text(path), where), where), where)
    return Replay(Case.from_dict(model.case, where), tuple(model.checks), model.finding, model.reason, path)


def _with_case(raw: object, where: str) -> object:
    """Return *raw*; CaseError if its case is of a later version.

    The version is checked first, because a later version may also have other keys around the case, whose error would
    mislead.
    """
    if isinstance(raw, dict):
        refuse_later(raw.get("case"), VERSION, where)
    return raw


def _text(path: Path) -> str:
    return STORED.text_of(path, str(path))


def _json(text: str, where: str) -> object:
    return STORED.parsed(text, where)


def target_id(case: Case) -> str:
    """Return the name of a case's target."""
    return f"{case.op}-{case.scheme}-{case.platform}"


def keep(replay: Replay, folder: Path, reason: str) -> Path:
    """Write *replay* with the reason into the stored regressions, and return the path."""
    case = replay.case
    path = folder / f"{target_id(case)}-{case.digest}.json"
    content = {
        "case": case.to_dict(),
        "item": target_id(case),
        "checks": list(replay.checks),
        "finding": replay.finding,
        "reason": reason,
    }
    replace_files({path: json.dumps(content, indent=1, sort_keys=True) + "\n"})
    return path
