"""The ONNX example as a user runs it: no accuracy is lost, and every code equals ONNX Runtime's."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from quantizer.cli import main

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="the example's data: pip install scikit-learn")
pytest.importorskip("onnxruntime", reason="the other system: pip install onnxruntime")
SCRIPT = Path(__file__).parents[2] / "examples" / "digits_onnx" / "quantize_onnx.py"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("digits_onnx")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--output", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == ""
    return done.stdout, folder


def test_int8_loses_less_than_a_point(example: tuple[str, Path]) -> None:
    found = {name: float(value) for name, value in re.findall(r"^(\S.*?) +top-1 (\S+)%$", example[0], re.MULTILINE)}
    assert set(found) == {"float", "int8", "int8 pow2"}
    assert found["float"] > 90
    assert found["int8"] >= found["float"] - 0.5


def test_every_code_equals_onnx_runtime_in_float_and_integers(example: tuple[str, Path]) -> None:
    rows = re.findall(r"^(\S+): (\d+) and (\d+) of (\d+)$", example[0], re.MULTILINE)
    assert [row[0] for row in rows][-1] == "logits"
    assert len(rows) == 8
    assert all(floats == integers == count for _, floats, integers, count in rows)


def test_both_models_are_kept_and_can_be_analysed(
    example: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = example[1]
    assert main(["analyse", str(folder / "digits.onnx"), "--view", "layer"]) == 0
    assert "/7/Gemm" in capsys.readouterr().out
    assert main(["analyse", str(folder / "digits_qdq.onnx")]) == 2
    assert "quantized already" in capsys.readouterr().err
