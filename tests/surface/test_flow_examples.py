"""The examples of the flow, each by the one command that its README names."""

from __future__ import annotations

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


@pytest.mark.parametrize(("name", "file"), [("op_test", "eltwise_o.txt"), ("model_test", "digits_o.txt")])
def test_an_example_prints_the_scores_of_its_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, file: str
) -> None:
    folder = copied(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    assert main(["optimize", "--cfg", f"{name}/opt.cfg"]) == 0
    assert (folder / "out" / file).is_file()
    said = "".join(capfd.readouterr())
    scores = [line for line in said.splitlines() if " metric: " in line]
    shown = (EXAMPLES / name / "README.md").read_text()
    assert len(scores) == 4
    assert all(line in shown for line in scores)


def test_the_plugins_run_in_the_flow(tmp_path: Path) -> None:
    folder = copied(tmp_path, "aipu_plugins")
    done = subprocess.run(
        [sys.executable, "-m", "quantizer.optimize", "--cfg", "opt.cfg", "--op-specs", "op_specs"],
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
