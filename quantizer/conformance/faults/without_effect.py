"""The pairs of fault and operator that change nothing, as data, each with its reason: cases/faults/without_effect.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantizer.core.errors import CaseError

FILE = Path("faults") / "without_effect.jsonl"
"""Below the folder of stored cases."""
_KEYS = {"fault", "ops", "reason"}
Pair = tuple[str, str]


def read_without_effect(cases: Path) -> Mapping[Pair, str]:
    """Return (fault, operator) -> reason of every listed pair; none where there is no such file.

    CaseError names file and line of what is not a JSON object with a fault, its operators and a reason, or listed twice.
    """
    path = cases / FILE
    found: dict[Pair, str] = {}
    if not path.exists():
        return found
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as err:
        raise CaseError(f"{path}: cannot be read: {err}.") from None
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        row = _row(line, where)
        for op in row["ops"]:
            if (row["fault"], op) in found:
                raise CaseError(f"{where}: {row['fault']} in {op} is listed before. Keep one line.")
            found[row["fault"], op] = row["reason"]
    return found


def _row(line: str, where: str) -> dict[str, Any]:
    wanted = 'Write {"fault": "...", "ops": ["..."], "reason": "..."}.'
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise CaseError(f"{where}: not JSON: {err}. {wanted}") from None
    if not isinstance(row, dict) or row.keys() != _KEYS:
        raise CaseError(f"{where}: must be an object of fault, ops and reason. {wanted}")
    if not isinstance(row["ops"], list) or not all(isinstance(op, str) for op in row["ops"]):
        raise CaseError(f"{where}: ops must be a list of names. {wanted}")
    for key in ("fault", "reason"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise CaseError(f"{where}: {key} must be a text. {wanted}")
    return row
