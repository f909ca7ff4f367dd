"""What a release promises: one version everywhere, and files of earlier versions that are still read (docs/versions.md)."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantizer import __version__
from quantizer.cli import main
from quantizer.conformance.campaign.entries import read_entry
from quantizer.core.errors import CaseError, PluginError
from quantizer.core.record import read_records
from quantizer.core.rooms import Engine

ROOT = Path(__file__).parents[2]
FORMATS = Path(__file__).parent / "formats"
Capture = pytest.CaptureFixture[str]


def test_one_version_is_stated_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading is not None
    assert (citation["version"], heading[1]) == (__version__, __version__)


@pytest.fixture(params=sorted(path.name for path in FORMATS.iterdir()))
def frozen(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of the files that one version of the formats wrote; the folder's name is the version."""
    folder = tmp_path / "frozen"
    shutil.copytree(FORMATS / request.param, folder)
    with sqlite3.connect(folder / "history.sqlite") as history:
        history.executescript((folder / "history.sql").read_text(encoding="utf-8"))
    history.close()
    return folder


def read_golden(path: str) -> int:
    from quantizer.conformance.stored.files import read_goldens

    return 0 if read_goldens(Path(path)) else 1


def read_statement(path: str) -> int:
    from quantizer.reporting import statement

    return 0 if statement.read_statement(Path(path).read_text(encoding="utf-8"), path) else 1


def read_bundle(path: str) -> int:
    from quantizer.conformance.vectors.reading import opened

    with opened(Path(path)) as bundle:
        return 0 if bundle.manifest.cases else 1


READERS: dict[str, tuple[str, Callable[[str], int]]] = {
    "records": ("run/records.jsonl", lambda path: main(["report", "show", path])),
    "facts of a run": ("run/run.json", lambda path: main(["report", "show", str(Path(path).parent), "--check"])),
    "replay file": ("replay.json", lambda path: main(["case", "replay", path])),
    "golden": ("golden.jsonl", read_golden),
    "statement": ("statement.json", read_statement),
    "vectors": ("bundle.zip", read_bundle),
    "history": ("history.sqlite", lambda path: main(["report", "history", "trend", path])),
}


@pytest.mark.parametrize("kind", READERS)
def test_files_of_an_earlier_version_are_read(frozen: Path, kind: str) -> None:
    name, read = READERS[kind]
    assert read(str(frozen / name)) == 0


def of_tomorrow(path: Path) -> None:
    """Make *path* a file of a later version, with additional keys."""
    if path.suffix == ".sqlite":
        with sqlite3.connect(path) as history:
            history.execute("PRAGMA user_version = 99")
        history.close()
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, later(data) if name.endswith(".json") else data)
    elif path.suffix == ".jsonl":
        path.write_bytes(b"".join(later(line) + b"\n" for line in path.read_bytes().splitlines()))
    else:
        path.write_bytes(later(path.read_bytes()))


def later(data: bytes) -> bytes:
    raw = json.loads(data)
    inner = raw if "version" in raw else raw["case"]
    inner["version"] = 99
    return json.dumps({"a_new_key": 1, **raw}, sort_keys=True).encode()


@pytest.mark.parametrize("kind", READERS)
def test_a_file_of_a_later_version_is_refused_by_its_version(frozen: Path, kind: str, capsys: Capture) -> None:
    name, read = READERS[kind]
    of_tomorrow(frozen / name)
    try:
        assert read(str(frozen / name)) == 2
        said = capsys.readouterr().err
    except Exception as err:  # noqa: BLE001  a reader that is not a command
        said = str(err)
    assert re.search(r"version 99[ ,].*Use the (one|quantizer) that wrote it", said), said
    assert "a_new_key" not in said


def in_the_words_of_earlier_builds(folder: Path) -> None:
    """Make every file of *folder* one of a build before the first release, which had other words and the same versions."""
    files = [path for path in folder.rglob("*.json*") if path.name != "replay.json"]
    for path in files:
        path.write_bytes(path.read_bytes().replace(b'"builtin"', b'"own"'))
    with sqlite3.connect(folder / "history.sqlite") as history:
        history.execute("ALTER TABLE figures RENAME COLUMN gaps TO holes")
    history.close()


@pytest.mark.parametrize("kind", ["records", "facts of a run", "golden", "statement", "history"])
def test_a_prerelease_file_is_refused_in_one_line(frozen: Path, kind: str, capsys: Capture) -> None:
    name, read = READERS[kind]
    in_the_words_of_earlier_builds(frozen)
    try:
        assert read(str(frozen / name)) == 2
        said = capsys.readouterr().err
    except CaseError as err:
        said = str(err)
    assert len(said.strip().splitlines()) == 1, said
    assert re.search(r"`(engine own|holes`, now `gaps)`.*(Run again and write it anew|name a new file)", said), said


@pytest.mark.parametrize("place", [["holes"], ["checks", "arithmetic", "holes"], ["checks", "arithmetic", "hole"]])
def test_counts_with_prerelease_names_are_refused_in_one_line(place: list[str]) -> None:
    raw: dict[str, Any] = {"id": "relu-a8-ideal", "op": "relu", "kind": "cases", "outcome": "passed", "version": 1}
    inner = raw
    for key in place[:-1]:
        inner = inner.setdefault(key, {})
    inner[place[-1]] = 2
    with pytest.raises(CaseError) as record:
        next(read_records([json.dumps(raw)], "r"))
    with pytest.raises(CaseError) as entry:
        read_entry(json.dumps(raw).encode(), "r:1")
    text = f"r:1: holds `{place[-1]}`, a word of a build before 1.0.0rc1, whose files no release reads. Run again and write it anew."
    assert str(record.value) == str(entry.value) == text


def test_an_engine_cannot_have_the_prerelease_name() -> None:
    with pytest.raises(PluginError, match="engine 'own'.*Choose another name"):
        Engine("own", "npz", "", (), {}, extra="")
