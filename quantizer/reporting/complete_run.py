"""Tells whether a run is complete: it ended, every collected item has a record, and its files belong together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from quantizer import __version__
from quantizer.core.errors import CaseError
from quantizer.core.facts import Facts, UnfinishedError
from quantizer.core.files import is_file, is_folder
from quantizer.core.record import Record
from quantizer.reporting.consistency import contradiction
from quantizer.reporting.store import FACTS, RECORDS, RUN, SAID, SUMMARY, read_run, read_run_facts
from quantizer.reporting.tally import summary_of

RENAMED = {"inconclusive": "gaps"}
"""Names of counts in summaries of earlier builds of this version -> their current names (tests/unit/formats/1)."""
ENDED = (0, 1)
"""pytest's exit statuses of a session that ran to its end, without and with failures."""


class IncompleteRunError(CaseError):
    """A run that no report and no gate may use."""


def read_complete_run(path: Path) -> tuple[list[Record], Facts]:
    """Return the records and the facts of the run in a folder.

    IncompleteRunError names the missing part, CaseError the part that cannot be read.
    """
    folder = run_folder(path)
    if folder is None and not is_folder(path):
        read_run(path)
        text = (
            f"is a records file without {FACTS}: whether its run is whole cannot be told. Name the folder of the run."
        )
        raise IncompleteRunError(f"{path}: {text}")
    return _read(path if folder is None else folder)


def read_either(path: Path) -> tuple[list[Record], Facts | None]:
    """Return the result of `read_complete_run`, or the records of a file without facts, such as a baseline."""
    folder = run_folder(path)
    if folder is None and not is_folder(path):
        records = read_run(path)
        if not records:
            raise CaseError(f"{path}: holds no record. Name a records file of a run, or the run's folder.")
        return records, None
    return _read(path if folder is None else folder)


def run_folder(path: Path) -> Path | None:
    """Return the run folder for *path*, a run folder or its records file; None for any other path."""
    folder = path if is_folder(path) else path.parent if path.name == RECORDS else None
    return folder if folder is not None and is_file(folder / FACTS) else None


def _read(folder: Path) -> tuple[list[Record], Facts]:
    try:
        facts = read_run_facts(folder)
    except UnfinishedError as err:
        reason = str(err).removeprefix(f"{folder / FACTS}: ")
        raise IncompleteRunError(f"{folder}: is not whole: {reason} Run again.") from None
    records = read_run(folder)
    if facts is None:
        raise IncompleteRunError(f"{folder}: holds no {FACTS}: whether the run is whole cannot be told. Run again.")
    if found := [*lacking(folder, records, facts)]:
        more = f" ({len(found) - 1} more like it.)" if len(found) > 1 else ""
        raise IncompleteRunError(f"{folder}: is not whole: {found[0]}{more} Run again.")
    return records, facts


def lacking(folder: Path, records: Sequence[Record], facts: Facts) -> Iterator[str]:
    """Yield why the run in *folder* is not whole, a sentence each."""
    yield from facts.lacks
    if facts.exit not in ENDED and not facts.lacks:
        yield f"pytest ended with exit status {facts.exit}."
    if RECORDS not in facts.digests:
        yield f"{FACTS} names no digest of {RECORDS}."
    for name, digest in facts.digests.items():
        # a name with a folder in it could point outside the run
        if Path(name).name == name and is_file(folder / name) and _digest(folder / name) != digest:
            yield f"{name} is not the one that {FACTS} was written with."
    if not _is_summed_up(folder / SUMMARY, records, facts):
        yield f"{SUMMARY} does not sum up {RECORDS}."
    known = {record.id for record in records}
    if missing := sorted(set(facts.items) - known):
        yield f"{_items(missing)} without a record, such as {missing[0]}."
    if foreign := sorted(known - set(facts.items)):
        yield f"{_items(foreign)} of the records not collected, such as {foreign[0]}."
    said = ((record.id, contradiction(record)) for record in records)
    yield from (f"record {name} contradicts itself: {text}." for name, text in said if text)


def unaccounted(facts: Facts) -> list[str]:
    """Return a sentence for every plugin function that no item judged, except one that the plugin itself replaced."""
    return [
        f"{one.name} ({one.origin}): " + (f"{one.by} runs in its place." if one.by else "no item of the run judged it.")
        for one in facts.functions
        if one.standing != "judged" and not one.by.endswith(f"({one.origin})")
    ]


def _is_summed_up(file: Path, records: Sequence[Record], facts: Facts) -> bool:
    """Return whether a summary matches *records*. A summary of another version of quantizer may count other things."""
    if facts.quantizer != __version__ or file.name not in facts.digests or not is_file(file):
        return True
    said: object = SAID.json_of(file, str(file))
    if not isinstance(said, dict):
        return False
    named = {RENAMED.get(name, name): number for name, number in said.items()}
    # through JSON, where tuples are lists and keys are texts
    return bool(named == json.loads(json.dumps(summary_of(records))))


def _items(ids: Sequence[str]) -> str:
    return "1 item is" if len(ids) == 1 else f"{len(ids):,} items are"


def _digest(file: Path) -> str:
    with RUN.opened(file, str(file)) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
