"""examples/fused: operators that round more than once, in their own specs, with right and wrong kernels."""

import json
import os
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fused"
ITEMS = "swiglu-a8-ideal or gated_rms_norm-w8a8-ideal"
CUSTOM = """
op: half_of
version: "1.0"
summary: Half of each element.
dims:
  shape: {type: shape, rank: [1, 2], min: 1, max: 4}
inputs:
  x: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: custom}
quantization: {family: halves}
tiling:
  "*": {rule: independent}
oracle: none
"""
HALVES = """
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import operator


@operator("half_of", version="1.0")
def reference(x):
    return x / 2


@operator("half_of", version="1.0")
def quantized(x, *, parameters):
    params, output = parameters.inputs["x"], parameters.outputs["y"]
    real = (x - params.zero_point).double() * params.scale / 2
    codes = round_tensor(real / output.scale, parameters.platform.rounding).long() + output.zero_point
    return codes.clamp(output.qmin, output.qmax)
"""


@pytest.fixture
def judged(warmed):
    """Judge the operators of a folder."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("CI", "AIPUPLUGIN_PATH", "PYTEST_ADDOPTS")}

    def run(folder, *options):
        given = ("op_specs", "--op-plugins=op_plugins", "-q", "-p", "no:cacheprovider", *options)
        return warmed.run("pytest", *given, cwd=folder, env=inherited)

    return run


@pytest.fixture
def folder(tmp_path):
    for part in ("op_specs", "op_plugins", "wrong"):
        shutil.copytree(EXAMPLE / part, tmp_path / part)
    return tmp_path


def test_right_kernels_are_green(folder, judged):
    done = judged(folder, "-k", ITEMS)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("one_lsb_off", ["worst       act["]),
        ("skips_a_stage", ["worst       y["]),
        ("shows_another_stage", ["stage 'half' is shown, and nobody declared it"]),
    ],
)
def test_wrong_kernels_fail_in_the_wrong_stage(folder, judged, wrong, said):
    done = judged(folder, "-k", ITEMS, f"--op-plugins=wrong/{wrong}.py")
    assert done.returncode == 1 and "2 failed" in done.stdout, done.stdout
    for text in said:
        assert done.stdout.count(text) == 2, done.stdout


def test_a_wrong_mode_of_the_last_rounding_fails(folder, judged):
    done = judged(folder, "-k", ITEMS, "--op-plugins=wrong/rounds_ties_away.py")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout
    assert done.stdout.count("worst       y[") == 1, done.stdout


def test_checks_that_a_custom_error_model_skips_are_reported(tmp_path, judged, warmed):
    for name, text in (("op_specs/half_of.yaml", CUSTOM), ("op_plugins/half_of.py", HALVES)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    done = judged(tmp_path, "-k", "half_of-a8-ideal")
    line = "not judged: accuracy of half_of: error model custom"
    assert done.returncode == 0 and line in done.stdout, done.stdout
    warmed.run("quantizer", "report", "statement", "reports/out", "-o", "stated", cwd=tmp_path)
    gaps = {gap["what"]: gap["reason"] for gap in json.loads((tmp_path / "stated.json").read_text())["gaps"]}
    assert "declare stages" in gaps["accuracy"]
