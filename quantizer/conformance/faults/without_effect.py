"""Reads and writes cases/faults/without_effect.jsonl: pairs of fault and operator without effect, with their reasons.

A row that names platforms concerns only these. `quantizer faults --places --list` writes such rows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantizer.core.errors import CaseError
from quantizer.core.files import exists
from quantizer.core.reading import Readable

FILE = Path("faults") / "without_effect.jsonl"
"""The file's path below the folder of stored cases."""
_KEYS = ({"fault", "ops", "reason"}, {"fault", "ops", "platforms", "reason"})
LISTED = Readable("a list of faults", 1 << 24, CaseError, 'Write {"fault": "...", "ops": ["..."], "reason": "..."}.')
EVERYWHERE = "*"
"""The value that means all platforms of the operator."""
Triple = tuple[str, str, str]
"""A fault, an operator and a platform."""


def read_places(cases: Path) -> Mapping[Triple, str]:
    """Return (fault, operator, platform) -> reason of all rows; the platform is `EVERYWHERE` if a row names none.

    Empty without the file. CaseError names the file and line of a row that occurs twice, or is not a JSON object with a
    fault, its operators and a reason.
    """
    path = cases / FILE
    found: dict[Triple, str] = {}
    if not exists(path):
        return found
    for number, line in LISTED.lines_of(path, str(path)):
        where = f"{path}:{number}"
        row = _row(line, where)
        for op, platform in itertools.product(row["ops"], row.get("platforms", [EVERYWHERE])):
            if (row["fault"], op, platform) in found:
                raise CaseError(f"{where}: {row['fault']} in {op} is listed before. Keep one line.")
            found[row["fault"], op, platform] = row["reason"]
    return found


def with_places(text: str, silent: Mapping[Triple, str]) -> str:
    """Return the file's *text* with *silent* in place of the rows that name platforms; rows for all platforms stay."""
    kept = [line for line in text.splitlines() if '"platforms"' not in line]
    ops: dict[tuple[str, str, str], list[str]] = {}
    for (fault, op, platform), reason in silent.items():
        ops.setdefault((fault, reason, platform), []).append(op)
    # platforms with the same operators share a row, so that the file stays readable
    platforms: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (fault, reason, platform), names in ops.items():
        platforms.setdefault((fault, reason, tuple(sorted(names))), []).append(platform)
    rows = [
        {"fault": fault, "ops": list(names), "platforms": sorted(where), "reason": reason}
        for (fault, reason, names), where in platforms.items()
    ]
    return "".join(f"{line}\n" for line in (*kept, *map(json.dumps, rows)))


def _row(line: str, where: str) -> dict[str, Any]:
    wanted = LISTED.hint
    row = LISTED.parsed(line, where)
    if not isinstance(row, dict) or row.keys() not in _KEYS:
        raise CaseError(f"{where}: must be an object of fault, ops and reason. {wanted}")
    for key in sorted(row.keys() & {"ops", "platforms"}):
        if not isinstance(row[key], list) or not all(isinstance(name, str) for name in row[key]):
            raise CaseError(f"{where}: {key} must be a list of names. {wanted}")
    for key in ("fault", "reason"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise CaseError(f"{where}: {key} must be a string. {wanted}")
    return row
