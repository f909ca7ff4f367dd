"""The folder of a run while it is written: one writer, invalid until the run is complete, no drafts left behind."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from quantizer.core.errors import CaseError
from quantizer.core.facts import unfinished
from quantizer.core.files import is_file, is_folder, replace_files
from quantizer.reporting.store import FACTS, FAILURES, RECORDS, SAID

LOCK = ".lock"
"""The lock file. The operating system unlocks it, however its owner ends."""
_DRAFT = re.compile(r"\.[\w.-]+\.(?:(jsonl|json|xml|html|md)\.[a-z0-9_]{8}~?|[0-9a-f]{12}\.(draft|before))")
"""The temporary file that a killed writer leaves."""
RUNS = "the session that writes it has not ended, or was killed."


class RunFolder:
    """The exclusive right to write a run into a folder. Taking it immediately invalidates an older run there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: FileLock | None = None
        self._before: bytes | None = None
        self._journal: TextIO | None = None
        self._mark: tuple[int, int] | None = None
        """The identity of the lock file. A folder that replaces ours has a different lock file."""

    @property
    def claimed(self) -> bool:
        """Whether this process has claimed the folder."""
        return self._lock is not None

    def claim(self) -> None:
        """Take the folder, sweep it and mark it as not whole; CaseError if another process writes into it."""
        if self.claimed:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # without waiting: a second writer is a mistake, not a queue
            lock = FileLock(self.path / LOCK, timeout=0)
            lock.acquire()
        except Timeout:
            text = "another run writes into this folder. Wait for it, or name another folder."
            raise CaseError(f"{self.path}: {text}") from None
        except OSError as err:
            raise _unwritable(self.path, err) from None
        self._lock, self._mark = lock, _identity(self.path / LOCK)
        try:
            sweep(self.path)
            # kept, so that a session without items can restore the older run
            self._before = SAID.bytes_of(self.path / FACTS) if is_file(self.path / FACTS) else None
            self._invalidate()
        except BaseException:
            self.release()
            raise

    def _invalidate(self) -> None:
        """Mark the folder as not whole. On a full disk its facts are removed: without them no reader accepts a run."""
        try:
            replace_files({self.path / FACTS: unfinished(RUNS)}, CaseError)
        except CaseError as err:
            if self._before is None:
                raise
            with contextlib.suppress(OSError):
                (self.path / FACTS).unlink(missing_ok=True)
            text = "The older run there is no longer whole, so that nobody takes it for this one."
            raise CaseError(f"{err} {text}") from None

    def note(self, line: str) -> None:
        """Add the record of an item that ended.

        CaseError if that is impossible.
        """
        try:
            if self._journal is None:
                self._journal = (self.path / RECORDS).open("w", encoding="utf-8", newline="\n")
            self._journal.write(f"{line}\n")
            # a killed run then leaves the records of its finished items
            self._journal.flush()
        except OSError as err:
            raise _unwritable(self.path / RECORDS, err) from None

    def damage(self) -> str | None:
        """Return what happened to the folder during the run, if it is no longer the folder that the run took."""
        if self._mark is None or _identity(self.path / LOCK) == self._mark:
            return None
        return f"{self.path}: was removed or replaced while the run was under way. Run again; no plugin may touch it."

    def restore(self) -> None:
        """Restore the previous run, because the session turned out to have no conformance item."""
        # once a record was written, the older run is gone
        if self.claimed and self._journal is None:
            if self._before is None:
                try:
                    (self.path / FACTS).unlink(missing_ok=True)
                except OSError as err:
                    raise _unwritable(self.path / FACTS, err) from None
            else:
                replace_files({self.path / FACTS: [self._before]}, CaseError)

    def fail(self, reason: str) -> None:
        """Leave the folder marked as not whole, with the *reason*."""
        if self.claimed:
            replace_files({self.path / FACTS: unfinished(reason)}, CaseError)

    def close_journal(self) -> None:
        """Close the list of results so far: the sorted records replace it."""
        if self._journal is not None:
            with contextlib.suppress(OSError):  # each line was already flushed, or could not be written
                self._journal.close()

    def release(self) -> None:
        """Release the folder, so that others can write."""
        self.close_journal()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unwritable(path: Path, err: OSError) -> CaseError:
    return CaseError(f"{path}: cannot be written: {(err.strerror or str(err)).lower()}.")


def sweep(folder: Path) -> None:
    """Remove the drafts of killed writers from the folder of a run; no other process writes into it now."""
    for place in (folder, folder / FAILURES):
        if is_folder(place):
            for file in place.iterdir():
                if _DRAFT.fullmatch(file.name) and not is_folder(file):
                    file.unlink(missing_ok=True)
