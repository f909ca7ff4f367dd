"""Files are written whole or not at all, through links and into pipes, and never over what the same command reads."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from reporting_facts import written
from test_onnx_compass import network

from quantizer.cli import main
from quantizer.core.files import WriteError, check_apart, create_files, overwritten, replace_files, resolved
from quantizer.core.record import Record


def named(folder: Path) -> dict[str, str]:
    """Return name -> text of every file below *folder*, hidden ones too."""
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize("held", [True, False])
def test_writing_through_a_link_replaces_its_target(tmp_path: Path, held: bool) -> None:
    if held:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "1.md").write_text("old")
    (tmp_path / "latest.md").symlink_to(Path("runs") / "1.md")
    replace_files({tmp_path / "latest.md": "new"})
    assert (tmp_path / "latest.md").readlink() == Path("runs") / "1.md"
    assert named(tmp_path) == {"1.md": "new"}


def test_circular_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(WriteError, match="a: cannot be written: too many levels"):
        replace_files({tmp_path / "a": "new"})
    assert (tmp_path / "a").is_symlink()


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "stdout").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_files({tmp_path / "stdout": [b"a ", b"page"], tmp_path / "other": "text"})
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 100) == b"a page"
    finally:
        os.close(reader)
    assert named(tmp_path) == {"other": "text"}


def test_the_file_behind_stdout_is_written_into(tmp_path: Path) -> None:
    """As in `-o /dev/stdout >> log`: existing content stays, and later output follows."""
    (tmp_path / "log").write_text("earlier\n")
    (tmp_path / "out").symlink_to("/dev/stdout")
    code = (
        "from pathlib import Path; from quantizer.core.files import replace_files; print('before');"
        "replace_files({Path('out'): 'page\\n', Path('other'): 'x'}); print('after')"
    )
    with (tmp_path / "log").open("a") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True, cwd=tmp_path)
    assert named(tmp_path) == {"log": "earlier\nbefore\npage\nafter\n", "other": "x"}


def test_a_folder_among_the_targets_is_refused_before_replacing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("b")
    for name in ("b", "link"):
        with pytest.raises(WriteError, match=f"{name}: cannot be written: is a directory. Nothing was written"):
            replace_files({tmp_path / "a": "new", tmp_path / name: "new"})
    assert named(tmp_path) == {"a": "old"}


@pytest.mark.parametrize("second_names", [True, False])
def test_replaced_files_are_restored_if_a_later_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_names: bool
) -> None:
    for name in ("a", "c"):
        (tmp_path / name).write_text(f"old {name}")
    replaced = Path.replace

    def failing(path: Path, target: Path) -> Path:
        if target.name == "c" and path.suffix != ".before":
            raise OSError(5, "Input/output error")
        return replaced(path, target)

    def unsupported(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "replace", failing)
    if not second_names:
        monkeypatch.setattr(Path, "hardlink_to", unsupported)
    with pytest.raises(WriteError, match="c: cannot be written: input/output error. Nothing was written"):
        replace_files({tmp_path / name: "new" for name in ("a", "b", "c", "d")})
    assert named(tmp_path) == {"a": "old a", "c": "old c"}
    monkeypatch.setattr(Path, "replace", replaced)
    replace_files({tmp_path / name: "new" for name in ("a", "b")})
    assert named(tmp_path) == {"a": "new", "b": "new", "c": "old c"}


def test_a_pipe_that_nobody_reads_brings_the_files_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")
    os.mkfifo(tmp_path / "pipe")

    def broken(*_: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(WriteError, match="pipe: cannot be written: broken pipe"):
        replace_files({tmp_path / "pipe": "text", tmp_path / "a": "new"})
    monkeypatch.undo()
    assert named(tmp_path) == {"a": "old"}


def test_two_names_of_one_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(WriteError, match="b: is named for two files"):
        replace_files({tmp_path / "a": "1", tmp_path / "b": "2"})
    assert named(tmp_path) == {}


def test_an_output_that_is_also_an_input_is_found_through_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").write_text("x")
    Path("link").symlink_to("model")
    os.mkfifo("pipe")
    assert overwritten([Path("model")], [Path("new"), Path("link")]) == Path("link")
    assert overwritten([tmp_path / "link"], [Path("model")]) == Path("model")
    assert overwritten([Path("pipe"), Path("model")], [Path("pipe"), Path("new")]) is None
    with pytest.raises(WriteError, match="^link: is read here, and would be overwritten. Name another file to write"):
        check_apart([Path("model")], [Path("link")])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a run, a model and its weights, and a plugin."""
    monkeypatch.chdir(tmp_path)
    written(Path("run"), [Record("relu-spec", "relu", "spec", "passed")])
    model = network(1)
    onnx.save(model, "net.onnx")
    onnx.save(model, "big.onnx", save_as_external_data=True, location="big.bin", size_threshold=0)
    Path("plugin.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("onnx compass net.onnx --text net.onnx --bin f.bin", "net.onnx"),
        ("onnx compass net.onnx --text f.txt --bin link", "link"),
        ("onnx compass big.onnx --text f.txt --bin big.bin", "big.bin"),
        ("report html run -o run/records.jsonl", "run/records.jsonl"),
        ("report html run -o run/run.json", "run/run.json"),
        ("report html run --baseline plugin.py -o plugin.py", "plugin.py"),
        ("report html run --history plugin.py -o plugin.py", "plugin.py"),
        ("report html run --faults plugin.py -o plugin.py", "plugin.py"),
        ("report junit run -o run/records.jsonl", "run/records.jsonl"),
        ("report statement run -o run/run", "run/run.json"),
        ("report merge run -o run", "run/records.jsonl"),
        ("faults --op-plugins plugin.py -o plugin.py", "plugin.py"),
        ("campaign --examples 1 --op-plugins plugin.py --markdown plugin.py", "plugin.py"),
        ("campaign --examples 1 -o out --markdown out/plan.json", "out/plan.json"),
    ],
)
def test_no_command_overwrites_its_input(
    folder: Path, arguments: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link").symlink_to("net.onnx")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(arguments.split()) == 2
    assert f"error: {name}: is read here, and would be overwritten." in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_model_beside_its_weights_is_converted(folder: Path) -> None:
    (folder / "f.bin").write_text("of an earlier run")
    assert main(["onnx", "compass", "big.onnx", "--text", "f.txt", "--bin", "f.bin"]) == 0
    assert len(np.fromfile("f.bin", np.uint8)) > 1000


def test_a_loop_of_links_is_one_error(tmp_path, capsys):
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop.name)
    named = ["--op-specs", str(loop)]
    for words in (["spec", "lint", str(loop)], ["campaign", "--examples", "1", *named, "-o", str(tmp_path / "out")]):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith(("error: ", str(loop)))
    assert resolved(loop).name == loop.name
    assert resolved("a\0b").is_absolute()


def test_created_folders_are_removed_if_a_write_fails(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    with pytest.raises(WriteError, match="cannot be written"):
        create_files({tmp_path / "new" / "folder" / "a": "1", taken / "b": "2"})
    assert [*tmp_path.iterdir()] == [taken]
