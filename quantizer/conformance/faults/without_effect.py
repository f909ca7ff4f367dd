"""The pairs of fault and operator that change nothing, as data, each with its reason: cases/faults/without_effect.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantizer.core.errors import CaseError
from quantizer.core.files import exists
from quantizer.core.reading import Readable

FILE = Path("faults") / "without_effect.jsonl"
"""Below the folder of stored cases."""
_KEYS = {"fault", "ops", "reason"}
LISTED = Readable("a list of faults", 1 << 24, CaseError, 'Write {"fault": "...", "ops": ["..."], "reason": "..."}.')
Pair = tuple[str, str]


def read_without_effect(cases: Path) -> Mapping[Pair, str]:
    """Return (fault, operator) -> reason of every listed pair; none where there is no such file.

    CaseError names file and line of what is not a JSON object with a fault, its operators and a reason, or listed twice.
    """
    path = cases / FILE
    found: dict[Pair, str] = {}
    if not exists(path):
        return found
    for number, line in LISTED.lines_of(path, str(path)):
        where = f"{path}:{number}"
        row = _row(line, where)
        for op in row["ops"]:
            if (row["fault"], op) in found:
                raise CaseError(f"{where}: {row['fault']} in {op} is listed before. Keep one line.")
            found[row["fault"], op] = row["reason"]
    return found


def _row(line: str, where: str) -> dict[str, Any]:
    wanted = LISTED.hint
    row = LISTED.parsed(line, where)
    if not isinstance(row, dict) or row.keys() != _KEYS:
        raise CaseError(f"{where}: must be an object of fault, ops and reason. {wanted}")
    if not isinstance(row["ops"], list) or not all(isinstance(op, str) for op in row["ops"]):
        raise CaseError(f"{where}: ops must be a list of names. {wanted}")
    for key in ("fault", "reason"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise CaseError(f"{where}: {key} must be a text. {wanted}")
    return row
