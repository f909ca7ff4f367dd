"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from quantizer.core.errors import QuantizerError
from quantizer.core.wording import shown_path


class WriteError(QuantizerError):
    """Files cannot be written; none of them was."""


def is_file(path: Path) -> bool:
    """Return whether *path* is a file; a name that none can have is that of none, where Path.is_file() raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Return whether *path* is a folder; a name that none can have is that of none."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Path) -> bool:
    """Return whether something stands at *path*; at a name that none can have nothing does."""
    return os.path.exists(path)  # noqa: PTH110


def overwritten(inputs: Iterable[Path], outputs: Iterable[Path]) -> Path | None:
    """Return the first of *outputs* that is one of *inputs*, links followed; None where there is none.

    Devices and pipes are no such file: they hold nothing that writing destroys.
    """
    read = {os.path.realpath(path) for path in inputs if not _is_stream(path)}
    return next((path for path in outputs if os.path.realpath(path) in read), None)


def check_apart(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise WriteError where one of *outputs* is one of *inputs*, which it would destroy."""
    if (path := overwritten(inputs, outputs)) is not None:
        text = "is read here, and would be overwritten. Name another file to write. Nothing was written."
        raise WriteError(f"{shown_path(path)}: {text}")


Content = str | Iterable[bytes]


def replace_files(contents: Mapping[Path, Content], error: type[QuantizerError] = WriteError) -> None:
    """Write each file in one step, over what stands there; *error*, and all as before, where that is not possible.

    Of a link the file that it names is written; a device, a pipe or our own output is written into, after the files.
    """
    streams = {path: content for path, content in contents.items() if _is_stream(path)}
    before: dict[Path, Path | None] = {}

    def replace(draft: Path, target: Path) -> None:
        if len(contents) > 1:
            before[target] = _set_aside(target, draft.with_name(f"{draft.name}~")) if exists(target) else None
        draft.replace(target)

    try:
        _write({path: content for path, content in contents.items() if path not in streams}, replace, error, _resolved)
        for path, content in streams.items():
            _write_into(path, content, error)
    except BaseException:
        _put_back(before, error)
        raise
    for kept in filter(None, before.values()):
        kept.unlink(missing_ok=True)


def create_files(contents: Mapping[Path, Content]) -> None:
    """Write all of *contents*, or none of them where one exists already or cannot be written."""
    created: list[Path] = []

    def create(draft: Path, path: Path) -> None:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            text = f"{shown_path(path)}: exists already and is not replaced. Nothing was written."
            raise WriteError(text) from None
        created.append(path)

    try:
        _write(contents, create, WriteError, lambda path: path)
    except BaseException:
        for path in created:
            path.unlink(missing_ok=True)
        raise


def _is_stream(path: Path) -> bool:
    """Return whether *path* is written into and never replaced: a device, a pipe, a socket, or where our own output goes."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or _own_output(path) is not None


def _own_output(path: Path) -> int | None:
    """Return the descriptor of our standard output or errors that goes to *path*, as /dev/stdout does into any file."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None


def _resolved(path: Path) -> Path:
    """Return the file that *path* names, links followed; OSError where it names a folder, or links that end nowhere."""
    target = Path(os.path.realpath(path))
    if is_folder(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _set_aside(target: Path, name: Path) -> Path:
    """Give *target* a second *name*; the only one where the file system has no second ones."""
    try:
        name.hardlink_to(target)
    except OSError:
        target.rename(name)
    return name


def _put_back(before: Mapping[Path, Path | None], error: type[QuantizerError]) -> None:
    """Bring back what stood at each path, and nothing where nothing did."""
    for target, kept in before.items():
        try:
            if kept is None:
                target.unlink(missing_ok=True)
            elif exists(target) and target.samefile(kept):
                kept.unlink()
            else:
                kept.replace(target)
        except OSError as err:
            where = f" What it held is {shown_path(kept)}." if kept else ""
            reason = (err.strerror or str(err)).lower()
            raise error(f"{shown_path(target)}: was written and cannot be put back: {reason}.{where}") from None


def _write_into(path: Path, content: Content, error: type[QuantizerError]) -> None:
    """Write *content* behind what we wrote there already."""
    own = _own_output(path)
    sys.stdout.flush()
    try:
        with path.open("wb") if own is None else os.fdopen(os.dup(own), "wb") as file:
            file.writelines([content.encode()] if isinstance(content, str) else content)
    except OSError as err:
        raise _refused(path, err, error) from None


def _write(
    contents: Mapping[Path, Content],
    place: Callable[[Path, Path], object],
    error: type[QuantizerError],
    target_of: Callable[[Path], Path],
) -> None:
    targets: dict[Path, Path] = {}
    named: set[Path] = set()
    drafts: dict[Path, Path] = {}
    path = Path()
    try:
        for path in contents:
            targets[path] = target_of(path)
            if targets[path] in named:
                raise error(f"{shown_path(path)}: is named for two files. Name two. Nothing was written.")
            named.add(targets[path])
        for path, content in contents.items():
            folder = targets[path].parent
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
            drafts[path] = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.writelines([content.encode()] if isinstance(content, str) else content)
            drafts[path].chmod(0o644)
        for path, draft in drafts.items():
            place(draft, targets[path])
    except OSError as err:
        raise _refused(path, err, error) from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _refused(path: Path, err: OSError, error: type[QuantizerError]) -> QuantizerError:
    """Return the error of a file that cannot be written."""
    return error(f"{shown_path(path)}: cannot be written: {(err.strerror or str(err)).lower()}. Nothing was written.")
