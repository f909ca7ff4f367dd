"""Write files whole or not at all."""

from __future__ import annotations

import os
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


Content = str | Iterable[bytes]


def replace_files(contents: Mapping[Path, Content], error: type[QuantizerError] = WriteError) -> None:
    """Write each file in one step, over what stands there; *error* where that is not possible."""
    _write(contents, lambda draft, path: draft.replace(path), error)


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
        _write(contents, create, WriteError)
    except BaseException:
        for path in created:
            path.unlink(missing_ok=True)
        raise


def _write(
    contents: Mapping[Path, Content], place: Callable[[Path, Path], object], error: type[QuantizerError]
) -> None:
    drafts: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            drafts[path] = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.writelines([content.encode()] if isinstance(content, str) else content)
            drafts[path].chmod(0o644)
        for path, draft in drafts.items():
            try:
                place(draft, path)
            except FileExistsError:
                what = "exists already and is not replaced. Nothing was written."
                raise error(f"{shown_path(path)}: {what}") from None
    except OSError as err:
        reason = (err.strerror or str(err)).lower()
        raise error(f"{shown_path(path)}: cannot be written: {reason}. Nothing was written.") from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
