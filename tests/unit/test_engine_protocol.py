"""Workers of external engines: greeting, answers, and errors that concern one case only."""

import dataclasses
import json
import math
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from quantizer.cli import main
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import EngineError, FormatError, RefusedError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.rooms import engines, forms
from quantizer.ops import load_built_ins
from quantizer.runtime.engines import process
from quantizer.runtime.engines.catalogue import Chosen, chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.frames import Frame, Job, question, replies
from quantizer.runtime.engines.greeting import greeting_of
from quantizer.runtime.engines.process import SERVE, Worker, greeted, serving

load_built_ins()
LIBRARY = load_library()
WORKERS = Path(__file__).parent / "workers"
LOYAL = serving(str(WORKERS / "loyal.py"))
CASE = {
    "op": "relu",
    "inputs": {"x": {"scale": 0.5, "zero_point": 0}},
    "output": {"scale": 0.5, "zero_point": 0, "lowest": -128, "highest": 127, "type": "int8"},
}


def job(op="relu", declared=True):
    x = np.array([-3, 4], np.int8)
    return Job(json.dumps({**CASE, "op": op}).encode(), {"x": x}, {}, [("int8", (2,))] if declared else None)


@pytest.fixture()
def mood(monkeypatch):
    workers = []

    def start(mood, patience=20.0):
        monkeypatch.setenv("LOYAL_MOOD", mood)
        workers.append(Worker("", patience, command=LOYAL))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_a_worker_greets_with_name_version_form_and_operators():
    said = greeted(LOYAL)
    assert (said.name, said.version, said.form, said.operators) == ("loyal", "1.5", "npz", ("relu", "add"))
    assert not said.floats


def test_a_worker_needs_neither_torch_nor_this_package(mood):
    with pytest.raises(EngineError, match="RuntimeError: none"):
        mood("modules").run(job())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hang", "did not answer within 2 s"),
        ("crash", "killed by SIGABRT"),
        ("shape", r"answered with int8 \[1\]; declared: int8 \[2\]"),
        ("type", r"answered with int32 \[2\]; declared: int8 \[2\]"),
        ("garbage", "answered with a message with 4,294,967,295 bytes of text"),
    ],
)
def test_a_worker_error_is_one_line_of_its_case(mood, name, text):
    with pytest.raises(EngineError, match=text) as caught:
        mood(name, 2.0).run(job())
    assert "\n" not in str(caught.value)


def test_an_operator_over_the_limit_three_times_is_skipped(monkeypatch):
    monkeypatch.setenv("LOYAL_MOOD", "hang")
    engine = ExternalEngine(chosen("", " ".join(LOYAL)))
    engine._worker = Worker("", 0.5, command=LOYAL)
    said = []
    for seed in range(4):
        (found,) = judge(trial(engine, seed=seed), ("arithmetic",))
        said.append(found.reason)
    engine.close()
    assert ["no longer asked for relu" in text for text in said] == [False, False, False, True]
    assert all("did not answer within 0.5 s" in text for text in said)


def test_an_unparsable_engine_command_is_one_error():
    with pytest.raises(UnsupportedError, match="--op-engine-command=python 'x: No closing quotation"):
        chosen("", "python 'x")


def test_a_worker_whose_greeting_differs_from_the_expected_is_refused(monkeypatch):
    worker = Worker("", command=LOYAL, expected=dataclasses.replace(greeted(LOYAL), floats=True))
    with pytest.raises(EngineError, match="the engine's greeting has changed: floats False, was True"):
        worker.run(job())
    assert worker.close() == 0


def test_a_restarted_worker_whose_greeting_changed_is_refused(tmp_path):
    text = "import os\nonce = not os.path.exists('seen')\nopen('seen', 'w').close()\nVERSION = '1' if once else '2'\n"
    file = tmp_path / "other.py"
    file.write_text(text.replace("seen", str(tmp_path / "seen")) + "load = lambda model, options: os._exit(0)\n")
    worker = Worker("", command=serving(str(file)))
    with pytest.raises(EngineError, match="ended with exit code 0"):
        worker.run(job())
    with pytest.raises(EngineError, match="the engine's greeting has changed: version '2', was '1'"):
        worker.run(job("add"))


def test_an_operator_without_a_worker_kernel_is_refused(mood):
    with pytest.raises(RefusedError, match="the engine refused: no kernel for add"):
        mood("").run(job("add"))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"protocol": 2}, "protocol 2, must be 1"),
        ({"name": ["x"]}, "whose name is"),
        ({"operators": "relu"}, "whose operators are not a list"),
        ({"floats": 1}, "whose floats is neither"),
    ],
)
def test_an_invalid_greeting_is_one_error(changed, text):
    with pytest.raises(FormatError, match=text):
        greeting_of({"protocol": 1, "name": "a", "version": "1", "form": "npz", **changed})


@pytest.mark.parametrize("header", [{}, {"replies": []}, {"replies": [{"outputs": -1}]}, {"replies": [{"outputs": 1}]}])
def test_an_invalid_reply_is_one_error(header):
    with pytest.raises(FormatError, match="not a reply|whose number of arrays"):
        replies(Frame(header), [job()])


def test_a_message_lists_its_jobs():
    frame = question([job(), job("add")])
    assert [item["feeds"] for item in frame.header["jobs"]] == [["x"], ["x"]]
    assert len(frame.model) == sum(item["model"] for item in frame.header["jobs"])


def trial(engine, op="relu", scheme="a8", seed=0):
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform("float32_any_order"))
    return Trial(target, build_case(target, HashChoices(seed, {"data": "random"})), engine)


def test_an_engine_without_builtin_functions_is_judged():
    engine = ExternalEngine(chosen("", " ".join(LOYAL)))
    assert (
        engine.supports(LIBRARY.spec("conv2d"), LIBRARY.scheme("w8a8"), LIBRARY.platform("ideal"))
        == "engine loyal has no conv2d"
    )
    found = [verdict for seed in range(8) for verdict in judge(trial(engine, seed=seed))]
    assert {verdict.check for verdict in found} >= {"arithmetic", "accuracy", "repeat"}
    assert "engine" not in {verdict.check for verdict in found}
    assert not [verdict for verdict in found if verdict.failing]
    engine.close()


def test_one_code_off_fails(monkeypatch):
    monkeypatch.setenv("LOYAL_MOOD", "off")
    engine = ExternalEngine(chosen("", " ".join(LOYAL)))
    failed = inner = 0
    for seed in range(8):
        made = trial(engine, seed=seed)
        found = {verdict.check: verdict for verdict in judge(made, ("arithmetic",))}
        failed += found["arithmetic"].failed
        inner += int((made.got < 127).sum())
    engine.close()
    assert failed >= inner > 20


def test_an_interpreter_and_a_worker_file_make_an_engine():
    found = chosen(f"{sys.executable}:{WORKERS / 'loyal.py'}")
    assert found.name == "loyal" and found.version == "1.5"
    assert found.computes("float32_any_order", named=False) and not found.computes("ideal", named=False)
    assert found.computes("ideal", named=True)
    assert Options(root=Path(), engine_command=" ".join(LOYAL)).arguments.startswith(" --op-engine-command=")


@pytest.mark.parametrize(("mood", "status"), [("", 0), ("off", 1)])
def test_a_printed_replay_command_replays_a_custom_engine_case(monkeypatch, tmp_path, mood, status):
    monkeypatch.setenv("LOYAL_MOOD", mood)
    engine = ExternalEngine(chosen("", " ".join(LOYAL)))
    case = max(
        (trial(engine, seed=seed).case for seed in range(8)), key=lambda case: math.prod(case.shapes["x"])
    ).to_dict()
    engine.close()
    told = {"case": case, "checks": ["arithmetic"], "finding": "f", "item": "relu-a8-ideal", "reason": "r"}
    (tmp_path / "replay.json").write_text(json.dumps(told))
    words = shlex.split(Options(root=Path(), engine_command=" ".join(LOYAL)).arguments)
    assert main(["case", "replay", str(tmp_path / "replay.json"), *words]) == status


def test_a_worker_importing_a_neighbour_file_gets_a_hint(tmp_path):
    (tmp_path / "compiled.py").touch()
    (tmp_path / "worker.py").write_text("import compiled\n")
    with pytest.raises(UnsupportedError, match=r"compiled\.py lies beside the worker.*Write sys\.path\.append"):
        chosen("", " ".join(serving(str(tmp_path / "worker.py"))))


def test_an_invalid_worker_is_a_usage_error(monkeypatch, tmp_path):
    (tmp_path / "none.py").write_text("print('hello')\n")
    with pytest.raises(UnsupportedError, match=r"its name is ''\. Give it a NAME of its own|form '': no such form"):
        chosen("", " ".join(serving(str(tmp_path / "none.py"))))
    with pytest.raises(UnsupportedError, match=r"did not start: it ended with exit code 1: hello|did not start"):
        chosen("", f"{sys.executable} {tmp_path / 'none.py'}")
    with pytest.raises(UnsupportedError, match=r"did not start: no_such_program: No such file"):
        chosen("", "no_such_program --serve")
    process.greeted.cache_clear()
    monkeypatch.setenv("LOYAL_MOOD", "form")
    with pytest.raises(UnsupportedError, match="form 'no-such-form': no such form"):
        chosen("", " ".join(LOYAL))
    process.greeted.cache_clear()


def test_shipped_engines_name_forms_and_files():
    for engine in engines().values():
        assert engine.form in forms()
        assert not engine.guest or Path(engine.worker).is_file()


def test_a_version_that_is_not_installed_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("QUANTIZER_ENGINES", str(tmp_path))
    assert Chosen("openvino", release="2026.3").missing == (
        "engine openvino: openvino@2026.3 not installed; quantizer engine install openvino@2026.3"
    )


def test_each_installed_version_is_listed(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("QUANTIZER_ENGINES", str(tmp_path))
    for release in ("1.30.0", "1.31.0"):
        python = tmp_path / f"onnxruntime@{release}" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        python.parent.mkdir(parents=True)
        python.touch()
    (tmp_path / "onnxruntime@1.31.0" / "complete").touch()
    assert main(["engine", "list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("onnxruntime@")]
    assert lines == [["onnxruntime@1.31.0", "1.31.0", "ort"]]


def test_the_server_is_one_file_of_the_standard_library():
    text = SERVE.read_text()
    assert "quantizer." not in text.replace("quantizer's", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def run(session, feeds):\n    return feeds['x']", "run returned an array: must return a list of arrays"),
        ("def run(session, feeds):\n    pass", "run returned None: must return a list of arrays"),
    ],
)
def test_a_worker_returning_no_list_gets_an_error(tmp_path, text, said):
    worker = tmp_path / "w.py"
    worker.write_text(f"NAME, VERSION, FORM = 'w', '1', 'npz'\ndef load(model, options):\n    pass\n{text}\n")
    running = Worker("", command=serving(str(worker)))
    with pytest.raises(EngineError, match=said):
        running.run(job())
    running.close()


def test_a_worker_with_a_syntax_error_is_named_with_its_line(tmp_path):
    (tmp_path / "w.py").write_text("NAME = 'w'\ndef run(session, feeds)\n")
    with pytest.raises(UnsupportedError, match=r"w\.py:2: expected ':'\.$"):
        chosen(f"python:{tmp_path / 'w.py'}")


def test_an_unknown_name_in_operators_is_reported_with_the_gap(tmp_path):
    (tmp_path / "w.py").write_text("NAME, VERSION, FORM, OPERATORS = 'w', '1', 'npz', ['reluu']\n")
    engine = ExternalEngine(chosen(f"python:{tmp_path / 'w.py'}"))
    spec, platform = LIBRARY.spec("relu"), LIBRARY.platform("float32_any_order")
    refusal = engine.supports(spec, LIBRARY.scheme("a8"), platform)
    assert refusal == "engine w has no relu; no shipped operator has the name 'reluu' of its OPERATORS"
    engine.close()
