"""Write files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from quantizer.core.errors import QuantizerError
from quantizer.core.yaml_source import shown_path


class WriteError(QuantizerError):
    """Files cannot be written; none of them was."""


def replace_files(texts: Mapping[Path, str]) -> None:
    """Write each file in one step, over what stands there; WriteError where that is not possible."""
    _write(texts, lambda draft, path: draft.replace(path))


def create_files(texts: Mapping[Path, str]) -> None:
    """Write all of *texts*, or none of them where one exists already or cannot be written."""
    created: list[Path] = []

    def create(draft: Path, path: Path) -> None:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            text = f"{shown_path(path)}: exists already and is not replaced. Nothing was written."
            raise WriteError(text) from None
        created.append(path)

    try:
        _write(texts, create)
    except BaseException:
        for path in created:
            path.unlink(missing_ok=True)
        raise


def _write(texts: Mapping[Path, str], place: Callable[[Path, Path], object]) -> None:
    drafts: dict[Path, Path] = {}
    path = Path()
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            drafts[path] = Path(name)
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            drafts[path].chmod(0o644)
        for path, draft in drafts.items():
            place(draft, path)
    except OSError as err:
        raise WriteError(f"{shown_path(path)}: cannot be written: {err.strerror}. Nothing was written.") from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
