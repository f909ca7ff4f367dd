"""Stores the results of a campaign, one per line, so that finished work is neither lost nor counted twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quantizer.conformance.campaign.entries import JOURNALED, read_entry
from quantizer.conformance.campaign.plan import PLANNED, Plan
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.files import replace_files
from quantizer.core.wording import shown_path

PLAN, JOURNAL = "plan.json", "journal.jsonl"
LARGEST_LINE = 1 << 24


class Journal:
    """The folder of one campaign. A line that a crash cut short is removed when the folder is opened again."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self._path = folder / JOURNAL
        known = folder / PLAN
        if known.exists():
            found = Plan.from_json(PLANNED.text_of(known, str(known)), str(known))
            if found != plan:
                raise UnsupportedError(
                    f"{folder}: holds another campaign (seed {found.seed}, {found.examples} examples of "
                    f"{len(found.targets)} targets). Ask for the same one to go on with it, or name another folder."
                )
        elif self._path.exists():
            raise CaseError(f"{folder}: a journal without a plan. Name another folder.")
        else:
            replace_files({known: plan.to_json() + "\n"})
        self._drop_torn_line()

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries in the order in which they were written; only the first of a unit that occurs twice."""
        if not self._path.exists():
            return
        seen: set[int] = set()
        with JOURNALED.opened(self._path, str(self._path)) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(LARGEST_LINE), b""), start=1):
                entry = read_entry(line, f"{self._path}:{number}")
                unit = entry.get("unit")
                if unit is not None and unit in seen:
                    continue
                if unit is not None:
                    seen.add(unit)
                yield entry

    def append(self, line: str) -> None:
        """Write one entry and wait until it is on the disk; CaseError where it cannot be written."""
        try:
            with self._path.open("ab") as stream:
                stream.write(line.encode() + b"\n")
                stream.flush()
                # without this, a crash of the machine could lose a unit that counts as finished
                os.fsync(stream.fileno())
        except OSError as err:
            reason = (err.strerror or str(err)).lower()
            text = (
                f"{shown_path(self._path)}: cannot be written: {reason}. Make room: the same command goes on from here."
            )
            raise CaseError(text) from None

    def _drop_torn_line(self) -> None:
        if not self._path.exists():
            return
        with JOURNALED.opened(self._path, str(self._path)):
            pass  # only a regular file is truncated
        with self._path.open("rb+") as stream:
            stream.seek(0, os.SEEK_END)
            end = stream.tell()
            back = min(end, LARGEST_LINE)
            stream.seek(end - back)
            tail = stream.read(back)
            # every whole line ends with a line feed; what follows the last one was cut short
            whole = tail.rfind(b"\n") + 1
            if whole < len(tail):
                stream.truncate(end - back + whole)
