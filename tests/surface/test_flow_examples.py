"""The examples of the flow, each by the one command that its README names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from warmed import Warmed

from quantizer.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def copied(tmp_path: Path, name: str) -> Path:
    shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("out"))
    return tmp_path / name


def line_of(name: str, word: str) -> list[str]:
    """Return the words of the first line in an example's README that names *word*."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    return next(line.split() for line in re.findall(r"^ {4}(.*)$", text, re.MULTILINE) if word in line)


@pytest.mark.parametrize(("name", "file"), [("op_test", "eltwise_o.txt"), ("model_test", "digits_o.txt")])
def test_an_example_prints_the_scores_of_its_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, file: str
) -> None:
    folder = copied(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    program, *words = line_of(name, "optimize")
    assert program == "quantizer"
    assert main([word.removeprefix("examples/") for word in words]) == 0
    assert (folder / "out" / file).is_file()
    said = "".join(capfd.readouterr())
    scores = [line for line in said.splitlines() if " metric: " in line]
    shown = (EXAMPLES / name / "README.md").read_text()
    assert len(scores) == 4
    assert all(line in shown for line in scores)


def test_the_plugins_run_in_the_flow(tmp_path: Path) -> None:
    folder = copied(tmp_path, "aipu_plugins")
    done = subprocess.run(
        [sys.executable, "-m", *line_of("aipu_plugins", "optimize")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "signed_square_o.txt").is_file()
    scores = [line for line in (done.stdout + done.stderr).splitlines() if " metric: " in line]
    assert scores[0] == "quantized metric: within 0.1 of the label: 1.0000"
    assert scores[3] == "float metric: within 0.01 of the label: 1.0000"


def test_the_plugin_operator_passes_its_conformance_run(tmp_path: Path, warmed: Warmed) -> None:
    folder = copied(tmp_path, "aipu_plugins")
    done = warmed.run("pytest", "-q", "-k", "a8-compass or golden", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_plugins_are_listed_with_the_line_of_the_readme(tmp_path: Path, warmed: Warmed) -> None:
    folder = copied(tmp_path, "aipu_plugins")
    text = (EXAMPLES / "aipu_plugins" / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`quantizer (optimize --plugin .*?)`", text)
    done = warmed.run("quantizer", *line.split(), cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "SignedSquare" in done.stdout


@pytest.mark.nightly  # each line starts a process of plugins
@pytest.mark.parametrize("place", range(3))
def test_commands_of_the_vendor_readme_select_the_named_items(tmp_path: Path, warmed: Warmed, place: int) -> None:
    folder = copied(tmp_path, "third_party_plugin")
    text = (EXAMPLES / "third_party_plugin" / "README.md").read_text(encoding="utf-8")
    lines = [line.split("  #")[0] for line in re.findall(r"^ {4}pytest ((?:-k|--op-plugins) .*)$", text, re.MULTILINE)]
    chosen, check, bare = (line for line in lines if "golden-update" not in line)
    extra = "" if "--op-plugins" in (chosen, check, bare)[place] else f" {bare}"
    few = {0: " --op-platform=ideal", 1: "", 2: " -k vec_dot-golden"}[place]
    done = warmed.run(
        "pytest", "-q", "-p", "no:cacheprovider", *f"{(chosen, check, bare)[place]}{extra}{few}".split(), cwd=folder
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout
