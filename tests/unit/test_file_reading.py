"""Files are opened in one place, in bounds; and what the last campaign of damaged files found stays refused."""

from __future__ import annotations

import ast
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from quantizer.cli import main
from quantizer.core.errors import CaseError, FormatError, PluginError, QuantizerError, SpecError
from quantizer.core.reading import Readable, shown_value
from quantizer.core.record import CheckRecord, Record
from quantizer.core.rooms import GROUP, _declared
from quantizer.core.wording import visible
from quantizer.ir.formats.npz import read_npy, read_npz
from quantizer.optimize.datasets import read_array
from quantizer.optimize.pickled_arrays import read_arrays
from quantizer.reporting import history, junit, page
from quantizer.reporting.annotations import annotate
from quantizer.reporting.thresholds import read_thresholds

PACKAGE = Path(__file__).parents[2] / "quantizer"
OPENS = {"open", "read_text", "read_bytes", "load", "fromfile", "memmap", "safe_load"}
"""Calls that read a file; of `load` only numpy's, onnx's, json's and pickle's."""
LOADERS = {"np", "numpy", "onnx", "json", "pickle", "torch", "yaml", "tomllib"}
ALLOWED = {
    "core/reading.py": "the place itself",
    "core/drafts.py": "opens what it has just made",
    "core/files.py": "writes",
    "core/processor.py": "/proc/cpuinfo",
    "core/reference.py": "the package's own specs",
    "core/schema.py": "the package's own schemas",
    "cli.py": "the null device",
    "commands/docs.py": "the package's own pages",
    "conformance/campaign/journal.py": "appends to a journal that was read through the place",
    "conformance/run/spec_files.py": "4096 bytes of a file that pytest collects",
    "ir/formats/npz.py": "entries of an archive, and maps of a file, that the place opened",
    "reporting/folder.py": "writes the records of a session that has not ended",
    "runtime/onnx_node_tests.py": "the models that the onnx package brings",
}
ANY = Readable("a file of this test", 1000, CaseError)


def _opened(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        if name in OPENS and (name != "load" or owner in LOADERS) and owner not in ("mlir_text", "webbrowser"):
            found.append(f"{node.lineno}: {owner}.{name}" if owner else f"{node.lineno}: {name}")
    return found


def test_all_files_are_read_through_one_module() -> None:
    own = {"ir/formats/top_mlir.py", "commands/mlir.py", "ir/formats/mlir_text.py"}  # `read_text` of mlir_text
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        calls = [call for call in _opened(path) if not (name in own and call.endswith(": read_text"))]
        if calls and name not in ALLOWED and not name.startswith("runtime/engines/"):
            found[name] = calls
    assert found == {}


def test_a_file_over_its_size_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert len(ANY.bytes_of(path)) == 1000
    path.write_bytes(b"x" * 1001)
    with pytest.raises(CaseError, match="file: more than 1000 bytes: this is not a file of this test"):
        ANY.bytes_of(path)
    with pytest.raises(CaseError, match="more than 1000 bytes"):
        [*ANY.lines_of(path)]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_devices_are_refused(path: str) -> None:
    if not Path(path).exists():
        pytest.skip("no such device here")
    with pytest.raises(CaseError, match="is a device or a pipe"):
        ANY.bytes_of(Path(path))
    for read in (read_npy, read_npz):
        with pytest.raises(FormatError, match="is a device or a pipe"):
            read(path)


def test_a_pipe_that_nobody_writes_into_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CaseError, match="is a device or a pipe"):
        ANY.bytes_of(tmp_path / "pipe")
    with pytest.raises(CaseError, match="cannot be read: is a directory"):
        ANY.bytes_of(tmp_path)
    with pytest.raises(CaseError, match="null character"):
        ANY.bytes_of(tmp_path / "a\0b")


def test_a_value_that_cannot_be_written_is_named_by_its_type() -> None:
    assert shown_value(10**5000) == "a int that is too large to show"
    assert shown_value("x" * 500).endswith("...")


def test_a_pickle_with_an_endless_key_is_refused_immediately(tmp_path: Path) -> None:
    # A dict whose key is a tuple of one tuple twice, of one tuple twice, ...: 120 levels, and 2^120 characters as text.
    key = (
        b"\x80\x04" + b"K\x01" + b"".join(b"\x94\x86".replace(b"\x86", b"h" + bytes([n]) + b"\x86") for n in range(120))
    )
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    prefix = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    body = b"\x80\x04}" + key[2:] + b"K\x01s."
    (tmp_path / "d.npy").write_bytes(prefix + body)
    assert (tmp_path / "d.npy").stat().st_size < 700
    with pytest.raises(FormatError, match="a key is not text but a tuple"):
        read_arrays(tmp_path / "d.npy")


def test_an_archive_with_an_extreme_ratio_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quantizer.ir.formats import npz

    monkeypatch.setattr(npz, "FREELY", 1 << 16)
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(1 << 18, np.uint8))
    with pytest.raises(FormatError, match="more than 20 times as many. Save the arrays with numpy.savez"):
        read_npz(tmp_path / "bomb.npz")
    np.savez(tmp_path / "plain.npz", x=np.zeros(1 << 18, np.uint8))
    assert read_npz(tmp_path / "plain.npz")["x"].size == 1 << 18


@pytest.mark.parametrize("shape", ["(True, 4)", "('a',)", "(-1,)", "4", "(2.0,)"])
def test_headers_of_no_shape_are_refused(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(FormatError):
        read_npy(tmp_path / "a.npy")


def test_a_list_of_files_that_names_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("list.txt\n")
    with pytest.raises(FormatError, match="a list names no other list"):
        read_array(tmp_path / "list.txt")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000,
        "[tool.quantizer]\nfactor = " + "9" * 5000,
        "[tool.quantizer]\nlsb = " + "9" * 400,
        "[tool.quantizer]\nlsb = [[[1]]]",
    ],
)
def test_thresholds_that_python_cannot_read_are_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SpecError, match=r"pyproject.toml"):
        read_thresholds(tmp_path)


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000, "x = ", "[project\n", "\0"])
def test_the_project_file_of_a_checkout_that_cannot_be_read_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(PluginError, match=r"pyproject.toml: not TOML: "):
        _declared(tmp_path / "pyproject.toml", GROUP)


@pytest.mark.parametrize("text", ["project = 3", "[project]\nname = 'quantizer-conformance'\nentry-points = 3\n"])
def test_a_project_file_without_entry_points_declares_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert not _declared(tmp_path / "pyproject.toml", GROUP)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE figures SET ratio = 'text'",
        "UPDATE figures SET cases = 0.5",
        "UPDATE runs SET name = CAST(x'ff' AS TEXT)",
        "UPDATE figures SET op = x'00'",
        "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    ],
)
def test_a_history_with_invalid_values_is_one_error(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "h.sqlite"
    history.append(file, "run", {"add": history.Figures(0.5, None, None, 1, 0, 0, None, None)})
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)
    with pytest.raises(CaseError, match=r"h\.sqlite: .*left as it is"):
        history.trend(file)
        history.of_run(file, "run")


EVIL = "a\x1b[2J\x00\u202e\x9b\ud800]]>&<b>"


def test_no_control_character_reaches_a_report() -> None:
    checks = {"accuracy": CheckRecord(passed=1, failed=1, ratio=2.0, reasons=(EVIL,))}
    records = [
        Record(
            f"add-{EVIL}-ideal",
            f"add{EVIL}",
            "cases",
            "failed",
            scheme=EVIL,
            platform=EVIL,
            checks=checks,
            failure=EVIL,
            gaps=(EVIL,),
        )
    ]
    shown = [junit.render(records), page.render(records, title=EVIL), "\n".join(annotate(records))]
    ET.fromstring(shown[0].encode())
    for text in shown:
        assert not {c for c in text if c not in "\n\t" and visible(c) != c}
        assert text.encode()


def test_errors_quote_no_control_characters_commands_or_endless_names() -> None:
    from quantizer.core.case_file import CaseModel, read_model

    said = str(CaseError(f"a\x1b[2J\n::error::b\n  ##[error]c\n{'x' * 10_000}"))
    assert said.splitlines()[:3] == ["a\\x1b[2J", "| ::error::b", "|   ##[error]c"]
    assert len(said.splitlines()[3]) < 3_000
    with pytest.raises(CaseError) as raised:
        read_model(CaseModel, {"a\n::error::b": 1}, "case.json")
    assert all(line.startswith("case.json: ") for line in str(raised.value).splitlines())


def test_a_time_with_more_digits_than_a_float_has_is_one_error(tmp_path):
    from quantizer.reporting.store import read_timings

    (tmp_path / "timings.jsonl").write_text('{"id": "a", "seconds": 1' + "0" * 400 + "}\n")
    with pytest.raises(CaseError, match="holds no timing of an item"):
        read_timings(tmp_path)


@pytest.mark.parametrize("text", ["[]", '{"a": 1}', '{"a": {"outcome": 1}}'])
def test_outcomes_of_the_gallery_that_are_not_texts_are_one_error(tmp_path, text):
    from quantizer.conformance.defects.gallery import read_outcomes

    (tmp_path / "outcomes.json").write_text(text)
    with pytest.raises(QuantizerError, match="must hold texts by name for each script"):
        read_outcomes(tmp_path / "outcomes.json")


def test_command_output_contains_no_control_or_ci_sequences(tmp_path: Path, capsys) -> None:
    for name, arrays in (("a", {"::error::x": [0], "\x1b[2J": [1]}), ("b", {"::error::x": [0], "\n::error::y": [1]})):
        np.savez(tmp_path / f"{name}.npz", **arrays)
    assert main(["compare", str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == 0
    said = capsys.readouterr().out
    assert "| ::error::x" in said and "\\x1b[2J" in said
    assert not any(line.strip().startswith("::") for line in said.splitlines())
    assert said.replace("\n", "").isprintable()
