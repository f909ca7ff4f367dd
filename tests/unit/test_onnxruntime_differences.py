"""The scripts of examples/onnxruntime_differences end as docs/onnxruntime_differences.md says for the version that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

onnxruntime = pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "onnxruntime_differences.md").read_text(encoding="utf-8")
VERSION = re.findall(r"\| script \| what \| ([\d.]+) \|", PAGE)[0]
SAID = dict(re.findall(r"^\| `(\w+\.py)` \|.*\| (differs|agrees) \|$", PAGE, re.MULTILINE))
SCRIPTS = sorted((ROOT / "examples" / "onnxruntime_differences").glob("*.py"))


def test_the_page_has_every_script() -> None:
    assert sorted(SAID) == [script.name for script in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_exits_as_documented(script: Path) -> None:
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"onnxruntime {onnxruntime.__version__}, onnx "), done.stderr
    assert (lines[-1], done.returncode) in (("differs", 1), ("agrees", 0))
    if onnxruntime.__version__ == VERSION:
        assert lines[-1] == SAID[script.name]
