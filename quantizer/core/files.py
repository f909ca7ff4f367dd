"""Writes files atomically: complete, or not at all."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from quantizer.core.drafts import Draft, new_token, open_draft, sweep_unfinished, sync_folders
from quantizer.core.errors import QuantizerError
from quantizer.core.wording import shown_path


class WriteError(QuantizerError):
    """Files could not be written; none of them was."""


def resolved(path: Path | str) -> Path:
    """Return *path* absolute and without links.

    A loop of links is returned as it is: reading it then raises the error.
    """
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # no file has a null character in its name
        return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() raises too


def is_file(path: Path) -> bool:
    """Return whether *path* is a file; False for an impossible name, for which Path.is_file() raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Return whether *path* is a folder; False for an impossible name."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Path) -> bool:
    """Return whether *path* exists; False for an impossible name."""
    return os.path.exists(path)  # noqa: PTH110


def is_taken(path: Path) -> bool:
    """Return whether *path*, where new files will be written, is a file, or a folder that holds files.

    New files that a killed process left there incomplete are removed first.
    """
    if not is_folder(path):
        return exists(path)
    sweep_unfinished(path)
    return any(files for _, _, files in os.walk(path))


def overwritten(inputs: Iterable[Path], outputs: Iterable[Path]) -> Path | None:
    """Return the first of *outputs* that is also one of *inputs* (after following links), or None.

    Devices and pipes are ignored, because writing to them destroys nothing.
    """
    read = {os.path.realpath(path) for path in inputs if not _is_stream(path)}
    return next((path for path in outputs if os.path.realpath(path) in read), None)


def check_apart(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise WriteError if one of *outputs* is also one of *inputs*, which writing would destroy."""
    if (path := overwritten(inputs, outputs)) is not None:
        text = "is read here, and would be overwritten. Name another file to write. Nothing was written."
        raise WriteError(f"{shown_path(path)}: {text}")


Content = str | Iterable[bytes]


def replace_files(contents: Mapping[Path, Content], error: type[QuantizerError] = WriteError) -> None:
    """Write each file in one step, replacing the old one; on *error* all files are as before.

    The last of several files completes the set: it is removed first and written last. A killed process leaves the old
    set, the new set, or a set without its last file, which every reader refuses. It never leaves a mixture of old
    and new files.
    Permissions stay; a new file gets the default permissions of the umask. Everything is on the disk before this
    returns. If a path is a link, its target is written. Devices, pipes and the standard output are written after the
    files, in place.
    """
    streams = {path: content for path, content in contents.items() if _is_stream(path)}
    files = {path: content for path, content in contents.items() if path not in streams}
    before: dict[Path, Path | None] = {}

    def replace(drafts: Sequence[Draft]) -> None:
        # a single file needs no copy of the old one: its replacement is atomic
        for draft in drafts if len(contents) > 1 else ():
            before[draft.target] = _set_aside(draft) if exists(draft.target) else None
        # without its last file the set is incomplete, and readers refuse it, until all others are replaced
        if len(drafts) > 1:
            drafts[-1].target.unlink(missing_ok=True)
            sync_folders([drafts[-1].target.parent])
        for draft in drafts:
            draft.path.replace(draft.target)

    try:
        _write(files, replace, error, _resolved)
        for path, content in streams.items():
            _write_into(path, content, error)
    except BaseException:
        _put_back(before, error)
        raise
    for kept in filter(None, before.values()):
        kept.unlink(missing_ok=True)


def create_files(contents: Mapping[Path, Content]) -> None:
    """Write all of *contents*; write nothing if one of them exists already or cannot be written.

    The last file completes the set. An earlier one that exists already with the same bytes is kept: a process that was
    killed between two files left it.
    """
    created: list[Path] = []

    def create(drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            try:
                # a link fails if the target exists, where a rename would replace it
                draft.target.hardlink_to(draft.path)
            except FileExistsError:
                if draft is not drafts[-1] and _hold_the_same(draft.target, draft.path):
                    continue
                text = f"{shown_path(draft.target)}: exists already and is not replaced. Nothing was written."
                raise WriteError(text) from None
            created.append(draft.target)

    try:
        _write(contents, create, WriteError, lambda path: path)
    except BaseException:
        for path in created:
            path.unlink(missing_ok=True)
        raise


def _hold_the_same(old: Path, new: Path) -> bool:
    """Return whether *old* is a regular file with the bytes of *new*; a device or a pipe is not opened."""
    is_like = old.is_file() and old.stat().st_size == new.stat().st_size
    return is_like and filecmp.cmp(old, new, shallow=False)


def _is_stream(path: Path) -> bool:
    """Return whether *path* can only be written into, not replaced: a device, a pipe, a socket, our own output."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or _own_output(path) is not None


def _own_output(path: Path) -> int | None:
    """Return the descriptor of our standard output or error that writes to *path*: /dev/stdout may be any file."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            # same device and inode, whatever the name
            if os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None


def _resolved(path: Path) -> Path:
    """Return the file that *path* names, links followed; OSError if it names a folder, or links that end nowhere."""
    target = Path(os.path.realpath(path))
    if is_folder(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # realpath leaves a link only in a loop
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _set_aside(draft: Draft) -> Path:
    """Link *draft* to its target. Rename it if the file system has no links."""
    try:
        draft.before.hardlink_to(draft.target)
    except OSError:
        draft.target.rename(draft.before)
    return draft.before


def _put_back(before: Mapping[Path, Path | None], error: type[QuantizerError]) -> None:
    """Restore the old file at each path; remove the new one if there was none."""
    for target, kept in before.items():
        try:
            if kept is None:
                target.unlink(missing_ok=True)
            elif exists(target) and target.samefile(kept):
                kept.unlink()
            elif exists(target) or not _linked(kept, target):
                kept.replace(target)
        except OSError as err:
            where = f" What it held is {shown_path(kept)}." if kept else ""
            reason = (err.strerror or str(err)).lower()
            raise error(f"{shown_path(target)}: was written and cannot be put back: {reason}.{where}") from None


def _linked(kept: Path, target: Path) -> bool:
    """Give *kept* its name *target* again if the name is free; False if the file system has no hard links."""
    try:
        target.hardlink_to(kept)
    except OSError:
        return False
    kept.unlink()
    return True


def _write_into(path: Path, content: Content, error: type[QuantizerError]) -> None:
    """Append *content* to the part that we have written already."""
    own = _own_output(path)
    # text that was printed before must come first
    sys.stdout.flush()
    try:
        with path.open("wb") if own is None else os.fdopen(os.dup(own), "wb") as file:
            file.writelines(_pieces(content))
    except OSError as err:
        raise _refused(path, err, error) from None


def _write(
    contents: Mapping[Path, Content],
    place: Callable[[Sequence[Draft]], object],
    error: type[QuantizerError],
    target_of: Callable[[Path], Path],
) -> None:
    targets: dict[Path, Path] = {}
    named: set[Path] = set()
    drafts: dict[Path, Draft] = {}
    path = Path()
    token = new_token()
    # folders that this call will create, to remove them again after an error
    made = {folder for path in contents for folder in path.parents if not exists(folder)}
    try:
        for path in contents:
            targets[path] = target_of(path)
            if targets[path] in named:
                raise error(f"{shown_path(path)}: is named for two files. Name two. Nothing was written.")
            named.add(targets[path])
        # In each folder, the draft that is renamed last is created first: its lock protects all of them.
        guards = set({targets[path].parent: path for path in contents}.values())
        for path in sorted(contents, key=lambda path: path not in guards):
            drafts[path] = open_draft(targets[path], token)
            drafts[path].fill(_pieces(contents[path]), keep=path in guards)
        place([drafts[path] for path in contents])
        sync_folders(target.parent for target in targets.values())
        # all is written: the folders stay
        made.clear()
    except OSError as err:
        raise _refused(_at_fault(err, targets, path), err, error) from None
    finally:
        for draft in drafts.values():
            draft.close()
        # the innermost first: only empty folders can be removed
        for folder in sorted(made, key=lambda folder: len(folder.parts), reverse=True):
            with contextlib.suppress(OSError):  # the folder was not created, or another process wrote into it
                folder.rmdir()


def _at_fault(err: OSError, targets: Mapping[Path, Path], path: Path) -> Path:
    """Return the path that an error concerns: the path in the error, or the last path that was being written."""
    named = {str(err.filename), str(err.filename2)}
    return next((asked for asked, target in targets.items() if str(target) in named), path)


def _pieces(content: Content) -> Iterable[bytes]:
    """Return the bytes of *content*; an unpaired surrogate, which has no bytes, is written as an escape."""
    return [content.encode("utf-8", "backslashreplace")] if isinstance(content, str) else content


def _refused(path: Path, err: OSError, error: type[QuantizerError]) -> QuantizerError:
    """Return the error of a file that cannot be written."""
    return error(f"{shown_path(path)}: cannot be written: {(err.strerror or str(err)).lower()}. Nothing was written.")
