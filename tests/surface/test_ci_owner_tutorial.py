"""docs/tutorials/ci_owner.md, followed in a copy of its vendor project: green, red, known, fixed, in two parts, released."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from followed import ROOT, run
from warmed import Warmed

PAGE = (ROOT / "docs" / "tutorials" / "ci_owner.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.*?)(?: +# .*)?$", PAGE, re.MULTILINE)
RIGHT = "return (down + up.long() + out.zero_point)"
WRONG = "return (down + up.long() + out.zero_point + 2 * (x == given.zero_point))"
PART = "-k 'relu-a8-compass or relu-regressions or reject'"
"""Options that run a few items instead of all 42, in one process instead of two: seconds, not minutes."""

pytestmark = pytest.mark.nightly


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the vendor's project, with distribution metadata beside it in place of `pip install .`."""
    shutil.copytree(ROOT / "examples" / "third_party_plugin", tmp_path / "project")
    metadata = tmp_path / "vendor_ops-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-ops\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[quantizer.operators]\nvendor_ops = vendor_ops\n")
    for words in (
        ("init", "-q"),
        ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first", "--allow-empty"),
    ):
        subprocess.run(["git", "-C", str(tmp_path / "project"), *words], check=True)
    return tmp_path / "project"


@pytest.fixture
def typed(project: Path, warmed: Warmed) -> Callable[[str], str]:
    """Return a function that runs the page's command that begins with a given text."""
    folders = (project.parent, project / "src", ROOT)
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
        "COMMIT": "0123abc",
    }

    def typed(begins: str) -> str:
        command = next(command for command in COMMANDS if command.startswith(begins))
        if command.startswith("pytest"):
            command = re.sub(r"^pytest( -n 2)?", f"pytest {PART}", command)
        return run(command, project, warmed, variables)

    return typed


def shown(starts: str) -> str:
    """Return the line of the page's output that starts with the given text."""
    return next(line for line in PAGE.splitlines() if line.startswith(starts))


def test_the_ci_tutorial_goes_green_red_known_fixed(project: Path, typed: Callable[[str], str]) -> None:
    assert shown("replaced: ") in typed("pytest -n 2 --op-baseline")
    assert (project / "reports" / "junit.xml").is_file()
    kernel = project / "src" / "vendor_ops" / "relu.py"
    right = kernel.read_text(encoding="utf-8")
    assert RIGHT in right
    kernel.write_text(right.replace(RIGHT, WRONG), encoding="utf-8")
    red = typed("pytest -n 2 --op-baseline")
    for line in ("  expected ", "  got ", "  allowed ", "  suspect "):
        assert shown(line) in red, red
    # Another smallest case may fail in other checks, so only the starts of these lines are compared.
    for line in ("relu-a8-compass: arithmetic: ", "baseline: relu-a8-compass: failed (arithmetic 4.00, accuracy "):
        assert shown(line) and line in red, red
    assert "relu-a8-compass" in typed("quantizer report diff baseline.jsonl reports/out")
    typed("quantizer report diff baseline.jsonl reports/out --format markdown")
    assert "relu-a8-compass" in (project / "summary.md").read_text(encoding="utf-8")
    assert "wrote report.html" in typed("quantizer report html")

    (project / "known").mkdir()
    entry = re.findall(r"^`known/known.yaml`:\n\n```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    (project / "known" / "known.yaml").write_text(entry, encoding="utf-8")
    assert typed("cp reports/out/failures") == ""
    known = typed("pytest -n 2 --op-xfails")
    assert re.search(r"=+ \d+ passed", known), known
    kernel.write_text(right, encoding="utf-8")
    assert shown("relu-regressions: ") in typed("pytest -n 2 --op-xfails")


def test_two_shards_merge_into_the_run_of_the_release(
    project: Path, typed: Callable[[str], str], warmed: Warmed
) -> None:
    typed("pytest --op-shard=1/2")
    message = re.findall(r"`(error: shard .*?)`", PAGE)[0]
    assert message in run("quantizer report merge shards/1 -o half", project, warmed)
    typed("pytest --op-shard=2/2")
    assert "reports/out" in typed("quantizer report merge")
    assert "1 item: 1 passed" in typed("quantizer report show")
    assert "42 items before" in typed("quantizer report diff baseline.jsonl reports/out --fail-on")
    typed("pytest -n 2 && cp")
    assert len((project / "baseline.jsonl").read_text(encoding="utf-8").splitlines()) < 42
