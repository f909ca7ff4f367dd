"""Reports of public trackers as data: cases/real_bugs/*.jsonl, one thread a line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quantizer.core.errors import CaseError, SpecError
from quantizer.core.expressions import Expression, parse
from quantizer.core.files import exists
from quantizer.core.reading import Readable

FOLDER = "real_bugs"
"""The folder's name below the folder of stored cases."""
SAMPLE = "sample_"
"""Prefix of files whose reports were drawn together before any case was added for them. The date follows it."""
_SAID = ("ref", "system", "class", "what")
_PLANTED, _REWRITTEN, _UNREACHED = {*_SAID, "ops", "when", "does"}, {*_SAID, "rewrite"}, {*_SAID, "unreached"}
LISTED = Readable(
    "a list of reports",
    1 << 24,
    CaseError,
    'Write {"ref": "owner/name#1", "system": "...", "class": "...", "what": "..."} with "ops", "when" and "does", '
    'with "rewrite", or with "unreached".',
)
SAMPLES = "samples.json"
OUTCOMES = ("caught", "survive", "unmet", "unchanged", "unreached")
FIRST = Readable(
    "the first outcomes of samples",
    1 << 20,
    CaseError,
    f'Write {{"2026-11-24": {{"caught": 19, ...}}}} with {", ".join(OUTCOMES)} in this order.',
)
Does = str | tuple[str | int, ...]
"""The id of a fault of the catalogue, or an effect of `effects.py` with its numbers."""


@dataclass(frozen=True)
class Report:
    """One thread of a tracker: what went wrong in which system, and how the bug is planted or why it is not."""

    ref: str
    """owner/name#number on GitHub."""
    system: str
    kind: str
    what: str
    ops: tuple[str, ...] = ()
    when: Expression | None = None
    """The condition under which it was seen, over `facts.py`."""
    does: Does = ""
    rewrite: str = ""
    """The wrong rewrite of a graph of a few nodes (`fusion/planted.py`), for a bug that needs two nodes."""
    unreached: str = ""
    """The reason why no case can express the bug; empty if it is planted."""
    sample: str = ""
    """The day on which its sample was drawn, from the file's name; empty for a report outside samples."""


def read_reports(cases: Path) -> tuple[Report, ...]:
    """Return every report in the order of file and line; empty without a folder. CaseError names file and line."""
    folder, found = cases / FOLDER, list[Report]()
    if not exists(folder):
        return ()
    for path in sorted(folder.glob("*.jsonl")):
        drawn = path.stem.removeprefix(SAMPLE) if path.stem.startswith(SAMPLE) else ""
        for number, line in LISTED.lines_of(path, str(path)):
            where = f"{path}:{number}"
            report = replace(_report(LISTED.parsed(line, where), where), sample=drawn)
            if any(report.ref == other.ref for other in found):
                raise CaseError(f"{where}: {report.ref} is listed before. Keep one line.")
            found.append(report)
    return tuple(found)


def read_samples(cases: Path) -> dict[str, dict[str, int]]:
    """Return, for each day of drawing, the number of reports by outcome before any change; CaseError names the file."""
    path = cases / FOLDER / SAMPLES
    if not exists(path):
        return {}
    found = FIRST.parsed(FIRST.text_of(path), str(path))
    rows = list(found.values()) if isinstance(found, dict) else [None]
    for row in rows:
        if (
            not isinstance(row, dict)
            or tuple(row) != OUTCOMES
            or not all(type(n) is int and n >= 0 for n in row.values())
        ):
            raise CaseError(f"{path}: must hold a count of each outcome for each day. {FIRST.hint}")
    return dict(found)


def _report(row: Any, where: str) -> Report:
    if not isinstance(row, dict) or row.keys() not in (_PLANTED, _REWRITTEN, _UNREACHED):
        raise CaseError(f"{where}: must be an object of these keys. {LISTED.hint}")
    texts = [row[key] for key in (*_SAID, "when", "rewrite", "unreached") if key in row]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise CaseError(f"{where}: {', '.join(_SAID)} must be strings. {LISTED.hint}")
    said = (row["ref"], row["system"], row["class"], row["what"])
    if "ops" not in row:
        return Report(*said, rewrite=row.get("rewrite", ""), unreached=row.get("unreached", ""))
    if not isinstance(row["ops"], list) or not row["ops"] or not all(isinstance(op, str) for op in row["ops"]):
        raise CaseError(f"{where}: ops must be a list of operators. {LISTED.hint}")
    try:
        when = parse(row["when"])
    except SpecError as err:
        raise CaseError(f"{where}: {err}") from None
    does = row["does"]
    if isinstance(does, list) and does and isinstance(does[0], str) and all(isinstance(n, str | int) for n in does):
        return Report(*said, tuple(row["ops"]), when, tuple(does))
    if not isinstance(does, str):
        raise CaseError(
            f"{where}: does must be the id of a fault, or a list of an effect and its numbers. {LISTED.hint}"
        )
    return Report(*said, tuple(row["ops"]), when, does)
