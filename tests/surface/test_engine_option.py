"""The option --op-engine, as a user sees it."""

import json
import sys
from pathlib import Path

import pytest

SPECS = Path(__file__).parents[2] / "op_specs"
MISSING = """\
from quantizer.runtime.engines import catalogue

catalogue.installed_version = lambda name: None
"""


@pytest.fixture
def run(pytester, nested):
    (pytester.path / "add.yaml").write_bytes((SPECS / "add.yaml").read_bytes())

    def run(*args):
        return nested("add.yaml", "-k", "a8-ort", "-p", "no:cacheprovider", *args)

    return run


def records(pytester):
    return [json.loads(line) for line in (pytester.path / "reports/out/records.jsonl").read_text().splitlines()]


def test_a_real_engine_is_judged_on_its_own_platform(run, pytester):
    result = run("--op-engine", "onnxruntime")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["quantizer: profile gate, engine onnxruntime 1.*"])
    (cases,) = [record for record in records(pytester) if record["kind"] == "cases"]
    assert cases["id"] == "add-a8-ort"
    assert cases["engine"].startswith("onnxruntime 1.")
    assert cases["checks"]["engine"]["passed"] == cases["cases"] > 20
    assert {"arithmetic", "accuracy", "tiled", "repeat"} <= cases["checks"].keys()
    assert "parameters" not in cases["checks"]


def test_a_missing_engine_is_an_error_in_one_line(run, pytester):
    pytester.makeconftest(MISSING)
    result = run("--op-engine", "onnxruntime")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            "ERROR: --op-engine=onnxruntime: onnxruntime: onnxruntime and onnx not installed; "
            "pip install 'quantizer-conformance[[]engines]'."
        ]
    )
    assert not (pytester.path / "reports").exists()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--op-engine", "onnx"], "--op-engine=onnx: no such name. Did you mean 'onnx*"),
        (["--op-engine", "onnxruntime", "--op-platform", "ideal"], "--op-platform=ideal: engine onnxruntime does not*"),
        (
            ["--op-engine", "onnxruntime", "--op-golden-update", "why"],
            "--op-golden-update: goldens are the codes of our*",
        ),
    ],
)
def test_a_wrong_engine_is_a_usage_error(run, args, text):
    result = run(*args)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {text}"])


def test_a_wrong_builtin_function_fails_the_engine_check(run, pytester):
    pytester.makepyfile(
        wrong="""
        from quantizer.numerics.requantize_accumulator import requantize_terms
        from quantizer.numerics.quantize import centred
        from quantizer.ops import operator

        @operator("add", version="2.0", platform="ort")
        def quantized(a, b, *, parameters):
            operands = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
            return (requantize_terms(operands, parameters) + 1).clamp(max=255)
        """
    )
    result = run("--op-engine", "onnxruntime", "--op-plugins", "wrong.py")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["add-a8-ort: engine: * outside *", "*our functions of platform ort*", "  passing*arithmetic*"]
    )


def test_several_engines_run_one_after_the_other_and_are_compared(pytester, tmp_path):
    (pytester.path / "relu.yaml").write_bytes((SPECS / "relu.yaml").read_bytes())
    for version, added in (("1.0", 0), ("1.1", 1)):
        Path(pytester.path, f"worker{version}.py").write_text(
            "import json, numpy as np\n"
            f"NAME, VERSION, FORM, OPERATORS = 'mine', '{version}', 'npz', ['relu']\n"
            "def load(model, options): return json.loads(model)\n"
            "def run(case, feeds):\n"
            "    x, y = case['inputs']['x'], case['output']\n"
            "    if case['activation'] != 'none': raise NotImplementedError('fused activations')\n"
            "    real = np.float32(x['scale']) * np.maximum(feeds['x'].astype(np.int64) - x['zero_point'], 0).astype(np.float32)\n"
            "    codes = np.rint(real / np.float32(y['scale'])) + y['zero_point']\n"
            f"    codes = codes + {added} * (codes == 7)\n"
            "    return [np.clip(codes, y['lowest'], y['highest']).astype(y['type'])]\n"
        )
    words = [f"--op-engine={sys.executable}:worker{version}.py" for version in ("1.0", "1.1")]
    words += ["--op-check=arithmetic", "--op-report", "two", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess("relu.yaml", *words)
    assert result.ret == 1
    folders = sorted(path for path in (pytester.path / "two").iterdir())
    assert [folder.name.partition("_")[2] for folder in folders] == ["worker1.0.py", "worker1.1.py"]
    result.stdout.fnmatch_lines(["quantizer report diff two/1-*_worker1.0.py two/2-*_worker1.1.py"])
    shown = result.stdout.str().rpartition("quantizer report diff")[2]
    assert "mine 1.0 before, mine 1.1 now." in shown
    assert "1 new failure" in shown
    assert not (pytester.path / "reports").exists()


def test_several_engines_must_be_named_on_the_command_line(run, pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--op-engine=onnxruntime")
    result = run("--op-engine", "litert")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *: name several engines on the command line itself."])
