"""Drafts: hidden files with new content, locked by their writer, on the disk before they replace a file.

A process that is killed leaves its drafts behind. When a process ends, the system releases its locks, and the next
process that writes into the folder removes the files without a lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: drafts are not locked there, and none is removed
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\..+\.(?P<token>[0-9a-f]{12})\.(draft|before)", re.DOTALL)
_LONGEST = 200
"""The number of characters of a file's name in the name of its draft: file systems allow 255 bytes."""
_swept: set[Path] = set()


@dataclass
class Draft:
    """A file that is being written next to its *target*; the lock lasts as long as *handle* is open."""

    target: Path
    path: Path
    handle: int | None

    @property
    def before(self) -> Path:
        """Where the earlier content of the target is kept while the set is written."""
        return self.path.with_suffix(".before")

    def fill(self, pieces: Iterable[bytes], *, keep: bool) -> None:
        """Write the content and wait until it is on the disk; *keep* the lock, or release it."""
        if self.handle is None:
            raise ValueError(f"{self.path} is written already")
        # a duplicate, because closing the handle itself would release the lock
        with os.fdopen(os.dup(self.handle), "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if not keep:
            self._release()

    def close(self) -> None:
        """Remove the draft if it did not replace its target, and release the lock."""
        self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def new_token() -> str:
    """Return the common part of the names of one set of drafts."""
    return secrets.token_hex(6)


def open_draft(target: Path, token: str) -> Draft:
    """Return a new locked draft beside *target*, with the permissions of the old file, else default ones."""
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    path = folder / f".{target.name[:_LONGEST]}.{token}.draft"
    known = _status(target)
    # O_EXCL: a file of this name that exists already may belong to another process
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # A draft of a private file is private from its first byte on; for a new file the system applies the umask.
    handle = os.open(path, flags, 0o600 if known else 0o666)
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if known is not None:
            _take_rights(path, known)
    except BaseException:
        os.close(handle)
        path.unlink(missing_ok=True)
        raise
    return Draft(target, path, handle)


def sync_folders(folders: Iterable[Path]) -> None:
    """Wait until the entries of *folders* are on the disk, on systems that can report it."""
    for folder in dict.fromkeys(folders):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                # the directory entry, not only the file, must reach the disk
                os.fsync(handle)
            finally:
                os.close(handle)


def sweep_unfinished(folder: Path) -> None:
    """Remove the remains of killed processes from *folder*: drafts, incomplete sets of new files, empty folders.

    A new file is a hard link to its draft until its set is complete. So a set is complete if each remaining draft has a
    link.
    """
    places = [Path(place) for place, _, _ in os.walk(folder, topdown=False)]
    sets: dict[str, list[Path]] = {}
    for paths in (paths for place in places for paths in _abandoned(place)):
        sets.setdefault(paths[0].name.rsplit(".", 2)[1], []).extend(paths)
    for paths in sets.values():
        linked = {path: _links(path) for path in paths}
        unfinished = () if all(linked.values()) else [file for files in linked.values() for file in files]
        for path in [*unfinished, *paths]:  # drafts last: only they show which files are linked
            path.unlink(missing_ok=True)
    for place in places:
        if place != folder and not os.listdir(place):  # noqa: PTH208
            place.rmdir()


def _links(draft: Path) -> list[Path]:
    """Return the files next to a draft that are hard links to it."""
    known = _identity(draft)
    return [path for path in draft.parent.iterdir() if path != draft and _identity(path) == known]


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _status(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except OSError as err:
        if err.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def _take_rights(path: Path, known: os.stat_result) -> None:
    own = path.stat()
    if hasattr(os, "chown") and (own.st_uid, own.st_gid) != (known.st_uid, known.st_gid):
        with contextlib.suppress(OSError):  # only root may change a file's owner
            os.chown(path, known.st_uid, known.st_gid)
    path.chmod(stat.S_IMODE(known.st_mode))


def _sweep(folder: Path) -> None:
    """Remove the drafts of ended processes from *folder*. Each process does so once, before its first draft there."""
    if folder in _swept or fcntl is None:
        return
    _swept.add(folder)
    for path in [path for paths in _abandoned(folder) for path in paths]:
        with contextlib.suppress(OSError):
            path.unlink()


def _abandoned(folder: Path) -> list[list[Path]]:
    """Return the sets of drafts in *folder* whose processes have ended; none where drafts are not locked."""
    left: dict[str, list[Path]] = {}
    for entry in os.scandir(folder) if fcntl is not None else ():
        if (found := _NAME.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
            left.setdefault(found["token"], []).append(folder / entry.name)
    return [paths for paths in left.values() if not any(path.suffix == ".draft" and _held(path) for path in paths)]


def _held(path: Path) -> bool:
    """Return whether a living process holds the lock of a draft."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
