"""Real engines: a crash or a hang fails one case only; unsupported operators are counted gaps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.judging.known_defects import concerns, known_defect
from quantizer.conformance.judging.recorder import Recorder
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.once import RAISED
from quantizer.conformance.trials.together import ask_ahead
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import TilePlan
from quantizer.core.defects import Defect, check_defects
from quantizer.core.errors import EngineError, RefusedError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.processor import instructions
from quantizer.core.record import Record
from quantizer.core.rooms import engines
from quantizer.core.verdict import CHECKS, Worst
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines import catalogue
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import Chosen, chosen
from quantizer.runtime.engines.child import DiedError
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.frames import Job, Reply
from quantizer.runtime.engines.process import Worker, _digest
from quantizer.runtime.engines.protocol import Asked

load_built_ins()
LIBRARY = load_library()
ENGINE = ExternalEngine(Chosen("onnxruntime"))


def job(what: int, model: bytes = b"m") -> Job:
    return Job(model, {"what": np.array([what], np.int16)})


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "workers"))
    made = Worker("trouble", patience=3.0)
    yield made
    made.close()


def test_outputs_are_returned_despite_printed_text(worker: Worker) -> None:
    outputs = worker.run(job(0))
    assert [values.tolist() for values in outputs] == [[0], [1]]
    assert outputs[0].dtype == np.int16


def test_sessions_are_kept_by_model_and_options(worker: Worker) -> None:
    assert [int(worker.run(job(0))[1][0]) for _ in range(3)] == [1, 2, 3]
    assert int(worker.run(job(0, b"another"))[1][0]) == 1
    assert int(worker.run(job(0))[1][0]) == 4


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (1, "the engine was killed by SIGSEGV: about to fall"),
        (2, "the engine did not answer within 3 s"),
        (3, "the engine raised RuntimeError: first line"),
        (4, "the engine ended with exit code 7"),
    ],
)
def test_an_engine_crash_is_an_error_of_its_job_only(worker: Worker, what: int, text: str) -> None:
    worker.run(job(0))
    for _ in range(2):
        with pytest.raises(EngineError, match=text):
            worker.run(job(what))
    assert worker.run(job(0))[0].tolist() == [0]


def test_several_jobs_in_one_message_give_their_single_outputs(worker: Worker) -> None:
    results = worker.run_each([job(0, b"one"), job(3), job(0, b"another"), job(0, b"one")])
    assert results is not None
    first, raising, *others = results
    assert [[int(values[0]) for values in result()] for result in (first, *others)] == [[0, 1], [0, 1], [0, 2]]
    with pytest.raises(EngineError, match="the engine raised RuntimeError: first line"):
        raising()


def test_only_the_job_that_ends_the_process_is_blamed(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    several = [job(0), job(1), job(0, b"another")]
    results = worker.run_each(several)
    assert results is not None
    first, bad, last = results
    assert first()[0].tolist() == last()[0].tolist() == [0]
    with pytest.raises(EngineError, match="the engine was killed by SIGSEGV"):
        bad()
    monkeypatch.setattr(worker, "_asked", None)  # it is known: nobody is asked
    assert worker.run_each(several) is None


def test_a_crash_that_no_single_job_repeats_fails_all_jobs(worker: Worker, tmp_path: Path) -> None:
    results = worker.run_each([job(0), job(5, str(tmp_path / "once").encode()), job(0, b"another")])
    assert results is not None
    text = r"the engine ended with exit code 7.*, in a message of 3 jobs, none of which does so alone"
    for result in results:
        with pytest.raises(EngineError, match=text):
            result()


def test_a_model_that_does_not_load_is_an_error(worker: Worker) -> None:
    with pytest.raises(EngineError, match="the engine raised ValueError: no such model"):
        worker.run(job(0, b"broken"))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 2)])
def test_tensor_shapes_survive_the_engine_protocol(worker: Worker, shape: tuple[int, ...]) -> None:
    values = np.zeros(shape, np.uint8)
    (found, *_) = worker.run(Job(b"m", {"what": np.zeros(1, np.int8), "x": values}))
    assert found.shape == (1,)
    echoed = ENGINE._worker.run(_identity(values)) if shape else ()
    assert not shape or echoed[0].shape == shape


def _identity(values: np.ndarray) -> Job:
    from ort_oracle import one_node

    return Job(one_node("Identity", {"x": values}, {}, ["x"]).SerializeToString(), {"x": values})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each message had."""
    counts: list[int] = []
    ask = ENGINE._worker._asked

    def counted(jobs: Sequence[Job]) -> list[Reply]:
        counts.append(len(jobs))
        return ask(jobs)

    monkeypatch.setattr(ENGINE._worker, "_asked", counted)
    return counts


def target(op: str, scheme: str = "a8") -> Target:
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform("ort"))


def trial(op: str, scheme: str = "a8", seed: int = 0, **asked: str) -> Trial:
    where = target(op, scheme)
    return Trial(where, build_case(where, HashChoices(seed, {"data": "random", **asked})), ENGINE)


def test_a_real_engine_passes_the_checks_of_its_surface() -> None:
    found = {verdict.check: verdict.status for verdict in judge(trial("conv2d", "w8a8"))}
    assert {"float", "arithmetic", "accuracy", "exact", "engine"} <= found.keys() <= set(ENGINE.checks)
    assert set(found.values()) <= {"pass", "inconclusive", "defect"}


def test_a_real_engine_gets_several_cases_in_one_message(asked: list[int]) -> None:
    alone = [trial("conv2d", "w8a8", seed) for seed in range(3)]
    wanted = [(one.outcome.codes, ENGINE.run_float(one.call, one.tensors)) for one in alone]
    asked.clear()
    together = [trial("conv2d", "w8a8", seed) for seed in range(3)]
    ask_ahead(together)
    assert asked == [6]
    for one, (codes, floats) in zip(together, wanted, strict=True):
        assert torch.equal(one.outcome.codes, codes)
        assert torch.equal(one.float_result, floats)
    assert [v.status for v in judge(together[0], ("float", "arithmetic"))] == ["pass", "pass"]
    assert asked == [6]


def test_only_the_case_that_ends_the_process_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [trial("add", seed=seed) for seed in range(3)]
    first, bad, last = several
    culprit = _digest(ENGINE._lowered(Asked(bad.call, bad.codes, bad.parameters)).job)
    ask, sizes = ENGINE._worker._asked, []

    def falls(jobs: Sequence[Job]) -> list[Reply]:
        sizes.append(len(jobs))
        if culprit in map(_digest, jobs):
            raise DiedError("was killed by SIGABRT")
        return ask(jobs)

    for name, other in (("_asked", falls), ("_fatal", {}), ("close", lambda: 0)):
        monkeypatch.setattr(ENGINE._worker, name, other)
    ask_ahead(several)
    assert sizes == [6, *[1] * 6]
    assert [f"outcome{RAISED}" in vars(one) for one in several] == [False, True, False]
    assert [v.status for one in (first, last) for v in judge(one, ("float", "arithmetic"))] == ["pass"] * 4
    (found,) = judge(bad, ("arithmetic",))
    assert found.failing and "the engine was killed by SIGABRT" in found.reason
    assert sizes == [6, *[1] * 6]


def test_the_tiles_of_a_case_are_one_message(asked: list[int]) -> None:
    where = target("add")
    case = build_case(where, HashChoices(0, {"data": "random"})).but(
        shapes={"a": (4, 4), "b": (4, 4)}, tiles=TilePlan({"d0": 1})
    )
    one = Trial(where, case, ENGINE)
    one.outcome
    asked.clear()
    assert [v.status for v in judge(one, ("tiled", "repeat"))] == ["pass", "pass"]
    assert asked == [4, 2, 2]


def test_a_user_engine_gets_one_run_per_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ENGINE,
        "_chosen",
        SimpleNamespace(given=("a command",), entry=ENGINE._chosen.entry, backend="onnxruntime", variant=None),
    )
    monkeypatch.setattr(ENGINE._worker, "run_each", None)
    one = trial("add")
    results = ENGINE.run_each([Asked(one.call, one.codes, one.parameters)] * 2)
    assert torch.equal(results[0](), results[1]())


def test_the_builtin_engine_has_no_engine_check() -> None:
    where = target("add")
    found = judge(Trial(where, build_case(where, HashChoices(0, {})), BuiltinEngine()))
    assert "engine" not in {verdict.check for verdict in found}
    assert BuiltinEngine.checks == tuple(name for name in CHECKS if name != "engine")


def test_a_wrong_platform_function_fails_the_engine_check() -> None:
    honest = REGISTRY.get("add", "quantized", "ort")

    def wrong(a: torch.Tensor, b: torch.Tensor, *, parameters: object) -> torch.Tensor:
        return honest(a, b, parameters=parameters) + (a == a.max()).long()

    judged = trial("add", seed=1)
    with REGISTRY.overridden("add", "quantized", wrong, "ort"):
        verdict = next(v for v in judge(judged, ("engine",)) if v.check == "engine")
    assert verdict.failing
    assert verdict.worst is not None


def test_a_case_refused_by_an_engine_is_one_gap() -> None:
    where = target("global_avg_pool2d")
    case = build_case(where, HashChoices(0, {"data": "random"}))
    case = case.but(ranges={"x": (0.0, 1e6), "y": (0.0, 1e-3)})
    found = judge(Trial(where, case, ENGINE))
    assert [(v.check, v.status) for v in found] == [("engine", "inconclusive")]
    assert "from 2**-32 to 256" in found[0].reason


def test_an_engine_that_fails_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(_: Job) -> None:
        raise EngineError("the engine was killed by SIGSEGV")

    judged = trial("add", seed=2)
    monkeypatch.setattr(ENGINE._worker, "run", falls)
    found = judge(judged, ("arithmetic", "engine"))
    assert [(v.check, v.status, v.reason) for v in found] == [
        ("arithmetic", "fail", "the engine was killed by SIGSEGV"),
        ("engine", "fail", "the engine was killed by SIGSEGV"),
    ]


@pytest.mark.parametrize(("step", "text"), [(0.25, "no integer"), (np.nan, "no integer"), (np.inf, "no integer")])
def test_codes_that_are_not_integers_fail_and_are_not_cast(
    monkeypatch: pytest.MonkeyPatch, step: float, text: str
) -> None:
    judged, right = trial("add", seed=2), ENGINE._run
    monkeypatch.setattr(ENGINE, "_run", lambda *given: right(*given).astype(np.float32) + step)
    (found,) = judge(judged, ("arithmetic",))
    assert found.failing
    assert text in found.reason


def test_an_engine_is_named_with_its_variant_and_a_wrong_name_is_refused() -> None:
    assert chosen("builtin") is None
    assert chosen("litert:xnnpack") == Chosen("litert", "xnnpack")
    for wrong in ("onnx", "litert:cpu", "onnxruntime:gpu"):
        with pytest.raises(UnsupportedError, match="--op-engine="):
            chosen(wrong)
    everything = {platform for entry in engines().values() for platform in entry.variant_of_platform}
    assert everything <= LIBRARY.platforms.keys()


def test_a_variant_is_judged_on_its_own_or_a_named_platform() -> None:
    xnnpack = Chosen("litert", "xnnpack")
    assert xnnpack.computes("xnnpack", named=False)
    assert not xnnpack.computes("tflite_ref", named=False)
    assert xnnpack.computes("tflite_ref", named=True)
    assert xnnpack.identity("tflite_ref") == "litert:xnnpack"
    assert Chosen("litert").identity("tflite_ref") == "litert:reference"
    assert Chosen("onnxruntime").identity("ort") == "onnxruntime"
    with pytest.raises(UnsupportedError, match="engine onnxruntime does not compute it. It computes: ort"):
        Options(root=Path(), engine="onnxruntime", platforms=("ideal",))


def test_a_missing_engine_supports_nothing_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "installed_version", lambda _: None)
    session = open_session(Options(root=Path(), engine="onnxruntime"))
    where = target("add")
    reason = session.engine.supports(where.spec, where.scheme, where.platform)
    assert reason == (
        "engine onnxruntime: onnxruntime and onnx not installed; pip install 'quantizer-conformance[engines]'"
    )


def defect(**changes: object) -> Defect:
    values = {
        "id": "made_up",
        "ops": ["add"],
        "predicate": "True",
        "checks": ["engine"],
        "reason": "made up",
        "case": "none.json",
        "engine": "onnxruntime",
        "versions": [ENGINE.version],
    }
    return Defect.model_validate(values | changes)


def test_a_defect_of_an_engine_excuses_that_engine_in_its_versions_alone() -> None:
    assert concerns(defect(), ENGINE, "ort")
    assert not concerns(defect(versions=["0.1"]), ENGINE, "ort")
    assert not concerns(defect(engine="litert:builtin"), ENGINE, "ort")
    assert not concerns(defect(), BuiltinEngine(), "ort")
    assert not concerns(defect(needs=["sve", "avx2"]), ENGINE, "ort")
    assert concerns(defect(lacks=["sve"] if "sve" not in instructions() else ["avx2"]), ENGINE, "ort")
    judged = trial("add", seed=3)
    platform = judged.target.platform.model_copy(update={"defects": [defect()]})
    assert known_defect(judged.under_platform(platform), "engine") == "made_up: made up"
    assert known_defect(judged.under_platform(platform), "arithmetic") is None


def test_cases_of_unstable_defects_always_count_as_known() -> None:
    judged = trial("add", seed=3)
    steady, unstable = (
        judged.target.platform.model_copy(update={"defects": [defect(unstable=value)]}) for value in (False, True)
    )
    assert [v.status for v in judge(judged.under_platform(steady), ("engine", "float"))] == ["pass", "pass"]
    known, other = judge(judged.under_platform(unstable), ("float", "engine"))[::-1]
    assert (known.check, known.status, known.reason) == ("engine", "defect", "made_up: made up")
    assert other.status == "pass"
    findings = check_defects([defect(engine=None, versions=[], unstable=True, needs=["avx3"])], "defects")
    places = [("unstable",), ("needs",), ("needs", 0)]
    assert [finding.location for finding in findings] == [("defects", 0, *place) for place in places]


def test_a_refusal_in_one_check_is_a_gap_of_that_check() -> None:
    attrs = {"kernel": (1, 3), "stride": (1, 3), "padding": (0, 0, 0, 0), "ceil_mode": True, "count_include_pad": True}
    where = target("avg_pool2d")
    case = build_case(where, HashChoices(0, {"data": "random"})).but(shapes={"x": (1, 1, 1, 5)}, attrs=attrs)
    found = {v.check: v.status for v in judge(Trial(where, case.but(tiles=case.tiles.__class__({})), ENGINE))}
    assert found["float"] == "inconclusive"
    assert found["arithmetic"] == "pass"
    with pytest.raises(RefusedError):
        judged = Trial(where, case, ENGINE)
        judged.run_float(judged.call, judged.tensors)


def test_coverage_of_an_unstable_defect_is_deterministic() -> None:
    """An unstable result may pass by chance. Its case covers the same as in a run where the check fails."""
    judged = trial("add", seed=3)
    judged = judged.under_platform(
        judged.target.platform.model_copy(update={"defects": [defect(unstable=True, checks=["engine", "accuracy"])]})
    )
    by_chance = judge(judged, ("engine", "accuracy"))
    worst = Worst("y", (0,), expected="0", got="9", allowed="0")
    seen = [replace(verdict, ratio=math.inf, worst=worst) for verdict in by_chance]
    ended = [replace(verdict, ratio=math.inf) for verdict in by_chance]
    covered = []
    for verdicts in (by_chance, seen, ended):
        recorder = Recorder(Record(id="add", op="add", kind="cases", outcome="passed"))
        recorder.add(judged, verdicts)
        covered.append({entry for entry in recorder.coverage if entry.startswith("data=")})
    assert covered[0] == covered[1] != covered[2] == set()
