"""Stand-alone scripts of stored cases: they run without this package, state what is right, and show each defect."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from quantizer.cli import main
from quantizer.conformance.defects.gallery import (
    OUTCOMES,
    PAGE,
    RUNS,
    SCRIPTS,
    cases_of_runs,
    entries,
    files,
    outcome_of,
    read_outcomes,
    read_runs,
    with_runs,
    yields,
)
from quantizer.conformance.defects.script_choice import find_defect, script_of_case, script_of_defect
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.stored.files import Replay, read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.defects import SEVERITIES
from quantizer.core.errors import QuantizerError, UnsupportedError
from quantizer.core.rooms import engines
from quantizer.reporting.complete_run import IncompleteRunError
from quantizer.runtime.engines.catalogue import ENCLOSING, Chosen
from quantizer.runtime.engines.scripts import array_text

ROOT = Path(__file__).parents[2]
needs_tosa = pytest.mark.skipif(find_spec("tosa_serializer") is None, reason="tosa-tools is not installed")
"""It holds numpy back, so that the newest of everything (`tox -e newest`) is without it."""
BLOCKER = "import sys; sys.modules['quantizer'] = None\n"
"""In front of a script: an import of this package raises."""


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(Options(root=ROOT, platforms=(ENCLOSING,)))


@pytest.fixture(scope="module")
def written(session: Session) -> dict[Path, str]:
    if find_spec("tosa_serializer") is None:
        pytest.skip("tosa-tools is not installed")
    return files(session, ROOT)


@pytest.mark.parametrize(
    "defect",
    [
        "ort/avg_pool_one_window_rounds_differently",
        "tflite_ref/left_shift_wraps",
        "xnnpack/scale_ratio_256_fails_allocation",
        "tflite_builtin/mean_tail_rounds_differently",
        "torch_qnnpack/avg_pool_count_include_pad_ignored",
        "torch_x86/conv_transpose_group_weights_transposed",
        pytest.param("tosa/avg_pool_int16_sums_wrap", marks=needs_tosa),
    ],
)
def test_a_script_shows_its_defect_without_this_package(session: Session, defect: str):
    platform, found = find_defect(session.library, defect)
    text = script_of_defect(session, platform, found)
    head, _, rest = text.partition('"""\n\n')
    outcome = outcome_of(f'{head}"""\n\n{BLOCKER}{rest}', sys.executable)
    assert outcome["outcome"] == "differs" or outcome["outcome"].startswith("it raises RuntimeError"), outcome


def _has_onnx(python: str) -> bool:
    """Return whether an engine's environment can build the model of a script; the engine itself needs no onnx."""
    return subprocess.run([python, "-c", "import onnx"], check=False, capture_output=True).returncode == 0


def test_a_script_of_an_engine_in_its_own_environment_shows_its_defect(session: Session):
    shown = [
        ("tract", "softmax_evaluated_as_table"),
        ("tflite_micro", "sigmoid_large_scale_wraps"),
        ("openvino", "avg_pool_scale_applied_twice"),
    ]
    here = [(name, defect) for name, defect in shown if not Chosen(name).missing and _has_onnx(Chosen(name).command[0])]
    if not here:
        pytest.skip("no engine of these is installed: quantizer engine install tract")
    for name, defect in here:
        script = script_of_defect(session, *find_defect(session.library, defect))
        assert outcome_of(script, Chosen(name).command[0])["outcome"] == "differs", name


def test_pages_and_scripts_are_fresh(written: dict[Path, str]):
    stale = [
        str(path) for path, text in written.items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != text
    ]
    assert stale == [], "run quantizer engine defects --gallery"
    assert {path.name for path in (ROOT / SCRIPTS).glob("*.py")} == {p.name for p in written if p != PAGE}


def test_scripts_import_nothing_of_this_package_and_are_short(written: dict[Path, str]):
    for path, text in written.items():
        if path == PAGE:
            continue
        assert not re.search(r"^\s*(import|from) quantizer", text, re.MULTILINE), path
        compile(text, str(path), "exec")
        code = text.partition('"""\n\n')[2].splitlines()
        code = [line for line in code if line.strip() and not line.startswith((" ", "#", "import", "from", "print"))]
        assert len(code) <= 40, f"{path}: {len(code)} statements"


def test_every_shipped_defect_has_a_severity(session: Session):
    for platform in session.library.platforms.values():
        for defect in platform.defects:
            assert defect.severity in SEVERITIES, f"{platform.platform}/{defect.id}"


@needs_tosa
def test_expected_codes_of_scripts_are_exact_values_rounded_once(session: Session):
    """The formula of a script, as it ran outside, equals the float64 reference of the operator."""
    recorded = read_outcomes(ROOT / OUTCOMES)
    compared = 0
    for entry in entries(session):
        said = recorded.get(entry.key)
        if said is None or entry.defect.severity not in ("memory", "wrong"):
            continue
        trial = Trial(target_of(session.library, entry.case, entry.name), entry.case, session.engine)
        if trial.y_hat.size > 16:
            continue
        y = trial.output
        exact = np.clip(trial.y_hat / float(y.scale) + float(y.zero_point), y.qmin, y.qmax).ravel()
        assert np.abs(np.array(json.loads(said["expected"])) - exact).max() <= 0.5 + 1e-9, entry.name
        compared += 1
    assert compared >= 20


@pytest.mark.parametrize("form", ["onnx", "tflite", "torch", pytest.param("tosa", marks=needs_tosa)])
def test_any_stored_case_becomes_a_script_of_each_form(session: Session, form: str):
    replay = read_replay(ROOT / "quantizer/platforms/onnxruntime/cases/defects/ort-int16_pair_sums_saturate.json")
    if form in ("tflite", "tosa"):
        replay = read_replay(ROOT / "quantizer/platforms/litert/cases/defects/tflite_ref-ties_half_up.json")
    outcome = outcome_of(script_of_case(session, replay, form), sys.executable)
    assert outcome["outcome"] in ("agrees", "differs"), outcome


def scalar_case(tmp_path: Path, op: str, platform: str) -> Replay:
    """Return a stored case of an operand without axes."""
    case = {
        "op": op, "scheme": "a8", "platform": platform, "shapes": {"x": []}, "attrs": {}, "order": "channels_first",
        "ranges": {"x": [-4.0, 4.0], "y": [0.0, 4.0]}, "tiles": {}, "data": {"set": "random", "seed": 3}, "version": 1,
    }  # fmt: skip
    path = tmp_path / f"{op}-{platform}.json"
    path.write_text(json.dumps({"case": case, "checks": ["arithmetic"], "finding": "", "item": ""}))
    return read_replay(path)


@pytest.mark.parametrize(("op", "platform"), [("relu", "tflite_ref"), ("sigmoid", "ort"), ("relu", "torch_x86")])
def test_a_script_feeds_a_scalar_as_an_array_without_axes(session: Session, tmp_path: Path, op: str, platform: str):
    outcome = outcome_of(script_of_case(session, scalar_case(tmp_path, op, platform)), sys.executable)
    assert outcome["outcome"] == "agrees", outcome


def test_the_text_of_an_array_keeps_type_and_shape():
    for values in (
        np.array(3, np.uint8),
        np.zeros([2, 0], np.int8),
        np.full([3], 7, np.int16),
        np.array(0.1, np.float32),
    ):
        made = eval(array_text(values), {"np": np})  # noqa: S307 - our own text
        assert (type(made), made.dtype, made.shape) == (np.ndarray, values.dtype, values.shape)
        assert (made == values).all()


def test_an_operator_that_the_engine_lacks_is_one_error(session: Session, tmp_path: Path):
    with pytest.raises(UnsupportedError, match="onnxruntime has no quantized kernel for relu"):
        script_of_case(session, scalar_case(tmp_path, "relu", "ort"))


def test_bad_requests_are_one_error(session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    replay = read_replay(ROOT / "quantizer/platforms/onnxruntime/cases/defects/ort-int16_pair_sums_saturate.json")
    with pytest.raises(UnsupportedError, match="no such form"):
        script_of_case(session, replay, "onx")
    with pytest.raises(UnsupportedError, match="Leave out one of the two"):
        script_of_case(session, replay, "torch", "onnxruntime")
    with pytest.raises(UnsupportedError, match="Name one of tflite_builtin/left_shift_wraps"):
        find_defect(session.library, "left_shift_wraps")
    with pytest.raises(UnsupportedError, match="no engine computes it"):
        script_of_defect(session, *find_defect(session.library, "compass/norm_epsilon_ignored"))
    assert main(["case", "repro"]) == 2
    assert "either a replay file or a defect" in capsys.readouterr().err


def test_the_command_writes_a_new_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "shown.py"
    assert main(["case", "repro", "--defect", "tflite_ref/left_shift_wraps", "-o", str(path)]) == 0
    assert subprocess.run([sys.executable, "-I", str(path)], capture_output=True, check=False).returncode == 1
    assert main(["case", "repro", "--defect", "tflite_ref/left_shift_wraps", "-o", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_missing_model_writer_is_one_error(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delitem(sys.modules, "quantizer.platforms.tosa.engine", raising=False)
    monkeypatch.setitem(sys.modules, "tosa_serializer", None)
    assert main(["case", "repro", "--defect", "tosa/avg_pool_int16_sums_wrap"]) == 2
    said = capsys.readouterr().err
    assert said == "error: tosa_serializer is not installed: pip install 'quantizer-conformance[engines]'.\n"


def test_every_engine_with_a_model_form_writes_scripts():
    assert [name for name, entry in engines().items() if not entry.script and entry.form != "npz"] == []


@pytest.mark.parametrize(
    "reason", ['"""\nraise SystemExit\n"""', 'x \\N{nothing} "', "a\u202eb", 'x """ + 1 + """ y' * 9]
)
def test_the_reason_of_a_stored_case_is_escaped_in_its_script(session: Session, reason: str):
    import ast
    from dataclasses import replace

    place = ROOT / "quantizer/platforms/compass/cases/defects"
    replay = replace(read_replay(min(place.glob("*.json"))), reason=reason)
    text = script_of_case(session, replay, "onnx")
    plain = script_of_case(session, replace(replay, reason="why"), "onnx")
    assert [ast.dump(node) for node in ast.parse(text).body[1:]] == [
        ast.dump(node) for node in ast.parse(plain).body[1:]
    ]
    assert text.replace("\n", "").isprintable()


def test_yield_counts_causes_not_entries_or_design_differences():
    defects = [SimpleNamespace(severity=severity) for severity in ("wrong", "wrong", "memory", "design")]
    roots = ("a", "a", "b", "c")
    pairs = zip(roots, defects, strict=True)
    known = [SimpleNamespace(engine="litert:xnnpack", root=root, defect=defect) for root, defect in pairs]
    assert yields(known, {"litert": 17_000, "tosa": 0}) == (
        "Causes per 10^6 cases of one gate run: litert about 100 (2 causes)."
    )
    assert yields(known, {}) == ""


def test_case_counts_of_runs_without_a_baseline_are_stored(tmp_path: Path):
    file = tmp_path / RUNS
    assert read_runs(file) == {}
    file.parent.mkdir(parents=True)
    file.write_text('{"ncnn": 4566}')
    assert cases_of_runs(tmp_path) == with_runs(read_runs(file), []) == {"ncnn": 4566}
    file.write_text('{"ncnn": "many"}')
    with pytest.raises(QuantizerError, match="must hold a whole number for each engine"):
        read_runs(file)
    (tmp_path / "records.jsonl").write_text("")
    with pytest.raises(IncompleteRunError):
        with_runs({}, [tmp_path])


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("print('got [2]'); print('differs'); print('device: none'); sys.exit(1)", "differs"),
        ("raise ValueError('no such tile\\nStack:\\n  32: _start')", "it raises ValueError: no such tile"),
        ("sys.stdout.flush(); import os; os.abort()", "the process ends with signal 6"),
    ],
)
def test_script_outcomes_are_read_despite_trailing_engine_output(end: str, outcome: str):
    script = f"import sys\nprint('engine 1.0')\nprint('expected [1]')\n{end}\n"
    assert outcome_of(script, sys.executable)["outcome"] == outcome
