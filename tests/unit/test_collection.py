"""Collection of many specs: no file is read twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from quantizer.conformance.run.collection import collect
from quantizer.conformance.setup.options import Options
from quantizer.core import library
from quantizer.core.errors import SpecError

RELU = Path(__file__).parents[2] / "op_specs/relu.yaml"


def _copies(folder: Path, count: int) -> list[Path]:
    text = RELU.read_text()
    found = [folder / f"relu_{number}.yaml" for number in range(count)]
    for path in found:
        path.write_text(re.sub("^op: relu$", f"op: {path.stem}", text, flags=re.MULTILINE))
    return found


def test_each_spec_file_is_read_once_in_a_collection(tmp_path, monkeypatch):
    library._load_library.cache_clear()
    read: Counter[str] = Counter()
    plain = library.load_yaml
    monkeypatch.setattr(library, "load_yaml", lambda path: (read.update([str(path)]), plain(path))[1])
    options, extra = Options(tmp_path), []
    files = _copies(tmp_path, 6)
    states = [state for path in files for state in collect(path, path.name, options, lambda: None, extra)]
    assert {state.spec.op for state in states} == {path.stem for path in files}
    assert set(map(str, files)) <= read.keys()
    assert set(read.values()) == {1}


def test_collecting_files_one_by_one_gives_the_same_library(tmp_path):
    files = _copies(tmp_path, 3)
    options, extra = Options(tmp_path), []
    for path in files:
        extra.append(path)
        grown = options.met(extra)
    assert grown.specs == options.library(files).specs
    assert [*grown.paths.items()] == [*options.library(files).paths.items()]


def test_an_operator_declared_in_two_files_names_both(tmp_path):
    (first,) = _copies(tmp_path, 1)
    (tmp_path / "other").mkdir()
    second = tmp_path / "other" / first.name
    second.write_text(first.read_text() + "# another file\n")
    options = Options(tmp_path)
    options.met([first])
    with pytest.raises(SpecError, match=r"operator 'relu_0' is declared in .*relu_0\.yaml too"):
        options.met([first, second])
    again = options.met([first])
    assert "relu_0" in again.specs
