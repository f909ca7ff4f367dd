"""`quantizer engine probe` infers an engine's arithmetic and writes a valid platform."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.cli import main
from quantizer.conformance.probe.platform_file import assembled
from quantizer.conformance.probe.probe import Probe
from quantizer.conformance.probe.words import answer, shown, told_apart
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.core.library import load_library
from quantizer.core.rooms import engines
from quantizer.runtime.engines.catalogue import Chosen

FAULTY = f"{sys.executable}:{Path(__file__).parent / 'workers' / 'faulty_simulator.py'}"
SATURATING = f"{sys.executable}:{Path(__file__).parent / 'workers' / 'saturating_simulator.py'}"
DECLARED = (
    ("ideal", "relu", {"requantize": "exact", "rounding": "half_even"}),
    ("ideal", "mul", {"requantize": "exact", "rounding": "half_even"}),
    ("compass", "mul", {"requantize": "multiplier_shift", "rounding": "half_even", "bits": 8}),
    ("compass", "avg_pool2d", {"requantize": "area_multiplier", "rounding": "half_even"}),
    ("compass", "quantize", {"quantizer": ("multiply_float32", "half_even", "before")}),
    ("tosa", "relu", {"requantize": "q31_single", "bits": 31}),
    ("tosa", "mul", {"requantize": "q31_double", "ratio": "float64"}),
    ("tpulang", "mul", {"requantize": "q31_wrapping", "rounding": "half_away", "ratio": "float64"}),
    ("tflite_ref", "mul", {"requantize": "q31_double", "ratio": "float32"}),
    ("ort", "mul", {"requantize": "f32_even_zpin"}),
    ("ort", "quantize", {"quantizer": ("divide_float32", "half_even", "after")}),
    ("torch_qnnpack", "mul", {"requantize": "f32_even_inverse"}),
)
REAL = (
    ("litert:reference", "tflite_ref", "mul", {"requantize": "q31_double", "ratio": "float32"}),
    ("onnxruntime", "ort", "add", {"requantize": "f32_even_zpin"}),
    ("torch:qnnpack", "torch_qnnpack", "mul", {"requantize": "f32_even_inverse"}),
    ("tosa", "tosa", "relu", {"requantize": "q31_single", "bits": 31}),
)


def found_in(engine, platform, op):
    session = open_session(Options(root=Path.cwd(), engine=engine, platforms=(platform,)))
    probe = Probe(session, session.library.platform(platform))
    try:
        (found,) = probe.found([session.library.specs[op]])
    finally:
        getattr(session.engine, "close", lambda: None)()
    return found


def has(found, settings):
    return any(settings.items() <= dict(one.settings).items() for one in found.kept)


@pytest.mark.parametrize(("platform", "op", "settings"), DECLARED)
def test_probing_the_builtin_engine_finds_the_declared_settings(platform, op, settings):
    found = found_in("builtin", platform, op)
    assert has(found, settings), [str(one) for one in found.kept]
    assert any(one.shipped == platform for one in found.kept)
    same = [
        one for one in found.kept if one.value("requantize") and one.value("requantize") == settings.get("requantize")
    ]
    assert len({one.value("rounding") for one in same}) <= 1
    assert found.rejected


@pytest.mark.parametrize(("engine", "platform", "op", "settings"), REAL)
def test_probing_a_real_engine_finds_its_declared_settings(engine, platform, op, settings):
    name, _, variant = engine.partition(":")
    if name not in engines() or Chosen(name, variant or None).missing:
        pytest.skip(f"{name} is not installed")
    found = found_in(engine, platform, op)
    assert has(found, settings), [str(one) for one in found.kept]


def test_simulator_faults_are_named_with_an_example_element():
    found = found_in(FAULTY, "float32_any_order", "fully_connected")
    best = answer(found, "float32_any_order")
    assert dict(best.settings) == {
        "sum times": "float32",
        "rounding": "half_up",
        "zero point": "outside",
        "accumulator": (16, "wrap"),
    }
    against = [
        evidence
        for evidence in told_apart(found, best)
        if evidence.hypothesis.value("accumulator") not in (None, (16, "wrap"))
    ]
    (evidence,) = against[:1]
    total = evidence.question.exact()[evidence.item] * float(evidence.question.output.scale)
    x, weight = evidence.question.inputs["x"], evidence.question.constants["weight"].params
    unit = float(x.scale) * float(weight.scale.reshape(-1)[evidence.item % weight.scale.numel()])
    assert abs(total / unit) > (1 << 15) - 1, shown(evidence)
    assert evidence.got != evidence.wanted


@pytest.mark.nightly
def test_probing_finds_a_saturating_accumulator_and_its_first_addend():
    found = found_in(SATURATING, "ideal", "fully_connected")
    best = answer(found, "ideal")
    assert best.value("rounding") == "half_away"
    assert (best.value("accumulator"), best.value("additions")) == ((20, "saturate"), "bias")
    assert not any(one.value("accumulator") in ("wide", (20, "wrap")) for one in found.kept)


@pytest.mark.nightly
def test_probing_finds_the_wrapping_accumulator_of_tosa():
    found = found_in("builtin", "tosa", "fully_connected")
    widths = {
        one.value("accumulator")
        for one in found.kept
        if one.value("requantize") == "q31_double" and not one.value("overflow")
    }
    assert widths == {(32, "wrap")}


def test_a_single_wrong_code_fits_no_declared_arithmetic(capsys):
    assert main(["engine", "probe", FAULTY, "--op=relu"]) == 1
    out = capsys.readouterr().out
    assert "none of the declared arithmetics" in out
    assert out.rstrip().endswith("nothing explains relu")


def test_the_probe_writes_a_valid_deterministic_platform_file(tmp_path, capsys):
    folder = tmp_path / "platforms"
    folder.mkdir()
    words = ["engine", "probe", "builtin", "--op-platform=tosa", "--op=relu", "-o"]
    texts = []
    for name in ("first", "first"):
        assert main([*words, str(folder / f"{name}.yaml")]) == 0
        texts.append((folder / "first.yaml").read_text())
    assert texts[0] == texts[1]
    assert "wrote" in capsys.readouterr().out
    platform = load_library([tmp_path]).platforms["first"]
    assert platform.functions == "tosa"
    assert platform.ops == ["relu"]
    assert "# relu: q31_single, 31 bits" in texts[0]


def test_operators_without_answer_are_left_out_of_the_file():
    """Before, the copy of a platform named it: without an answer every hypothesis is left."""
    right = found_in("builtin", "ort", "mul")
    other = open_session(Options(root=Path.cwd())).library
    target = right.targets[0]
    dead = replace(right, targets=(replace(target, spec=other.spec("add")),), questions=0, refused="failed: killed")
    made = assembled("mine", "engine", [right, dead], other.platform("ort"), other)
    assert made.raw["ops"] == ["mul"] and made.left == {"add": "failed: killed"}


UNSIGNED = """
NAME, VERSION, FORM, OPERATORS = "unsigned", "1", "npz", ["relu"]

def load(model, options):
    return None

def run(case, feeds):
    return [feeds["x"].astype("uint8")]
"""


def test_an_engine_with_other_code_types_gets_a_hint(tmp_path, capsys):
    (tmp_path / "worker.py").write_text(UNSIGNED)
    assert main(["engine", "probe", f"{sys.executable}:{tmp_path / 'worker.py'}", "--op=relu"]) == 2
    message = capsys.readouterr().err
    assert "answered with uint8" in message and "the codes of float32_any_order (signed)" in message
    assert message.rstrip().endswith("--op-platform names another platform, such as ort (unsigned).")


@pytest.mark.parametrize(
    ("words", "said"),
    (
        ([], "name one engine"),
        (["builtin"], "it computes every platform"),
        (["litert"], "has several variants"),
        (["nobody"], "engine=nobody: no such name"),
        (["builtin", "--op-platform=ideal", "--op=softmaxx"], "Did you mean 'softmax'?"),
        (["builtin", "--op-platform=ideal", "-o", "Ideal.yaml"], "write NAME.yaml"),
        (["builtin", "--op-platform=ideal", "-o", "ort.yaml"], "is a platform already"),
        (["builtin", "--op-platform=idea"], "no such name"),
    ),
)
def test_bad_input_is_one_error(words, said, capsys):
    assert main(["engine", "probe", *words]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("error:") == 1
