"""The gate finds every planted fault that has an effect, and passes the unchanged operators."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from quantizer.conformance.faults import Fault, Subject, catalogue, explicit_cases, gate_cases, kills, matrix, pairs
from quantizer.conformance.faults.changes import provided
from quantizer.conformance.faults.fault import FILE_KINDS
from quantizer.conformance.faults.matrix import Job, examined
from quantizer.conformance.faults.places import KILLED, STALE, UNDECIDED, WITHOUT, Places
from quantizer.conformance.faults.policies import Share, policies, shares
from quantizer.conformance.faults.without_effect import EVERYWHERE, read_places, with_places
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import CaseError
from quantizer.core.library import load_library
from quantizer.ir.formats.layer_files import layer_files
from quantizer.numerics.qparams import Parameters
from quantizer.ops.registry import FunctionKind

SPECS = load_library().specs
PAIRS = pairs(SPECS.values())
OPTIONS = Options(root=Path.cwd())
LISTED = {key[:2]: reason for key, reason in read_places(OPTIONS.cases).items() if key[2] == EVERYWHERE}
FEW = ("layer_norm", "softmax", "concat", "avg_pool2d")
"""A normalization, an operator with different declared defects, one with many operands, and one tiled with halos."""


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(OPTIONS)


@pytest.fixture(scope="module")
def few(session: Session) -> Callable[[str], Subject]:
    """Some cases of an operator, made once."""

    @cache
    def made(op: str) -> Subject:
        return Subject(session, op, islice(explicit_cases(session, SPECS[op], 4), 24))

    return made


@pytest.fixture
def first_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge no case after the first kill, and do not count cases; only the matrix needs both."""
    monkeypatch.setattr(kills, "WITHIN", 0)
    monkeypatch.setattr(kills, "FURTHER", 0)
    monkeypatch.setattr(matrix, "number_of_cases", lambda *_: 0)


def _sample() -> dict[str, list[str]]:
    """Return pairs that reach every fault and every operator; `tox -e nightly` takes all pairs."""
    chosen: dict[str, list[str]] = {op: [] for op in SPECS}
    for index, fault in enumerate(catalogue()):
        places = [op for found, op in PAIRS if found is fault and (fault.id, op) not in LISTED]
        chosen[places[index % len(places)]].append(fault.id)
    for op in SPECS:
        chosen[op] = chosen[op] or [next(f.id for f, at in PAIRS if at == op and (f.id, op) not in LISTED)]
    return chosen


SAMPLE = _sample()


@pytest.mark.usefixtures("first_kills")
@pytest.mark.parametrize("op", SPECS)
def test_sampled_faults_are_killed_without_false_alarms(session: Session, op: str):
    result = examined(session, Job(OPTIONS, dict(os.environ), op, tuple(SAMPLE[op]), {}))
    assert result.alarms == ()
    assert [(row.fault, row.outcome) for row in result.rows] == [(name, KILLED) for name in SAMPLE[op]]


@pytest.mark.nightly
@pytest.mark.usefixtures("first_kills")
@pytest.mark.parametrize("op", SPECS)
def test_all_faults_with_an_effect_are_killed_without_false_alarms(session: Session, op: str):
    names = tuple(fault.id for fault, where in PAIRS if where == op)
    listed = {name: LISTED[name, op] for name in names if (name, op) in LISTED}
    known = {(name, op, EVERYWHERE): reason for name, reason in listed.items()}
    result = examined(session, Job(OPTIONS, dict(os.environ), op, names, known))
    assert result.alarms == ()
    assert [(row.fault, row.outcome) for row in result.rows if row.outcome not in (KILLED, WITHOUT)] == []
    assert [row.fault for row in result.rows] == list(names)
    assert {row.fault for row in result.rows if row.outcome == WITHOUT} == set(listed)


def test_every_fault_has_an_effect_in_some_operator():
    assert {fault.id for fault, op in PAIRS if (fault.id, op) not in LISTED} == {fault.id for fault in catalogue()}
    assert LISTED.keys() <= {(fault.id, op) for fault, op in PAIRS}


def test_the_catalogue_is_large_and_its_names_are_unique():
    assert len(catalogue()) >= 150
    assert len({fault.id for fault in catalogue()}) == len(catalogue())
    assert {op for fault in catalogue() if isinstance(fault.where, tuple) for op in fault.where} <= set(SPECS)


def test_fault_pairs_are_sorted_by_catalogue_then_spec():
    order = [(catalogue().index(fault), list(SPECS).index(op)) for fault, op in PAIRS]
    assert order == sorted(order)


@pytest.mark.parametrize("op", [op if op in FEW else pytest.param(op, marks=pytest.mark.nightly) for op in SPECS])
@pytest.mark.parametrize("kind", ["reference", "quantize", "quantized", "tile", "convert", "write", "read"])
def test_a_planted_function_that_changes_nothing_is_not_found(
    few: Callable[[str], Subject], op: str, kind: FunctionKind
):
    forms = layer_files(SPECS[op]) if kind in FILE_KINDS else [""]
    if not forms:
        pytest.skip("no file format of layers holds the operator")
    form = next(iter(forms))
    found = few(op).examine(Fault("nothing", "nowhere", (op,), kind, lambda original: original, form))
    assert not found.effect
    assert not found.kills


def _raising(original):
    def faulty(*operands, **named):
        raise RuntimeError("no memory")

    return faulty


@pytest.mark.parametrize("op", FEW)
@pytest.mark.parametrize("kind", ["reference", "quantize", "quantized", "tile"])
def test_a_planted_function_that_raises_is_found_despite_declared_defects(
    session: Session, few: Callable[[str], Subject], op: str, kind: FunctionKind
):
    subject = few(op)
    fault = Fault("raising", "anywhere", (op,), kind, _raising)
    with subject.planting(fault):
        for target, case in gate_cases(session, op):
            if kind == "tile" and not case.tiles.sizes:
                continue
            assert any(v.failing for v in judge(Trial(target, case, session.engine))), target.id
            break
    if kind != "tile":
        assert subject.examine(fault).kills


def _twice_the_scale(parameters: Parameters) -> Parameters:
    y = parameters.outputs["y"]
    return replace(parameters, outputs={"y": replace(y, scale=y.scale * 2)})


def _other_table(parameters: Parameters) -> Parameters:
    table = parameters.tables["exp"]
    return replace(parameters, tables={"exp": replace(table, entries=table.entries // 2)})


@pytest.mark.parametrize("change", [_twice_the_scale, _other_table])
def test_a_declared_defect_excuses_only_real_system_results(session: Session, change):
    compass = gate_cases(session, "softmax", "compass")
    spoiled = [(target, case) for target, case in compass if target.id == "softmax-a16-compass"]
    fault = Fault("spoiled", "provided", ("softmax",), "quantize", provided(change))
    assert Subject(session, "softmax", spoiled).examine(fault).kills


def test_policies_of_other_tools_accept_equal_and_refuse_distant_results():
    import numpy as np

    wanted = np.array([0.5, -1.0, 2.0, 0.0])
    for found in shares([(wanted, wanted, 0.25)]).values():
        assert found == Share(0, 1)
    for got in (-wanted, None, wanted[:2], wanted + np.nan):
        for found in shares([(wanted, got, 0.25)]).values():
            assert found == Share(1, 1)
    assert {p.name for p in policies() if not p.accepts(wanted, wanted + 0.25, 0.25)} >= {
        "atol 0.1 rtol 0.04",
        "SQNR 20 dB",
    }
    assert {p.name for p in policies() if p.accepts(wanted, wanted + 0.25, 0.25)} >= {"1 LSB", "NNAPI 10 LSB"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ('{"fault": "a", "ops": ["b"]}', "must be an object of fault, ops and reason"),
        ('{"fault": "a", "ops": "b", "reason": "c"}', "ops must be a list"),
        ('{"fault": "a", "ops": ["b"], "reason": " "}', "reason must be a string"),
        ('{"fault": "a", "ops": ["b", "b"], "reason": "c"}', "a in b is listed before"),
    ],
)
def test_a_broken_list_of_pairs_names_its_line(tmp_path: Path, line: str, message: str):
    folder = tmp_path / "faults"
    folder.mkdir()
    good = json.dumps({"fault": "x", "ops": ["y"], "reason": "z"})
    (folder / "without_effect.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(CaseError, match=f"without_effect.jsonl:2: .*{message}"):
        read_places(tmp_path)


def test_without_a_list_no_pair_is_listed(tmp_path: Path):
    assert read_places(tmp_path) == {}


def of_platform(session: Session, op: str, platform: str, count: int) -> Subject:
    return Subject(session, op, islice(gate_cases(session, op, platform), count))


def fault_named(name: str) -> Fault:
    return next(fault for fault in catalogue() if fault.id == name)


@pytest.mark.parametrize(
    "name", ["multiplier_half", "rounding_half_up", "rounding_down", "slope_next", "slope_provided_next"]
)
def test_faults_are_planted_by_kind_of_number_not_by_name(session: Session, name: str):
    places = Places(of_platform(session, "leaky_relu", "tflite_ref", 93)).examined(fault_named(name), {})
    assert [(place.arithmetic, place.outcome) for place in places] == [
        ("negative, negative_shift, positive, positive_shift", KILLED)
    ]


@pytest.mark.parametrize("platform", ["tosa", "ort", "torch_x86"])
def test_a_rounding_fault_is_killed_in_averages_with_own_rounding(session: Session, platform: str):
    places = Places(of_platform(session, "avg_pool2d", platform, 60)).examined(fault_named("rounding_down"), {})
    assert {place.outcome for place in places} == {KILLED}


def test_a_rounding_fault_has_no_effect_on_a_table_kernel(session: Session):
    places = Places(of_platform(session, "leaky_relu", "ideal", 40))
    (place,) = places.examined(fault_named("rounding_down"), {})
    assert (place.outcome, place.reason) == (
        WITHOUT,
        "The integer forward looks codes up: the quantize rule has rounded, scaled and clipped them.",
    )
    (place,) = places.examined(fault_named("table_index"), {})
    assert (place.outcome, place.reason) == (KILLED, "")


def test_a_fault_of_one_platform_is_no_kill_on_another(session: Session):
    def on_compass(original):
        def faulty(**named):
            codes = original(**named)
            return codes + (named["parameters"].platform.platform == "compass")

        return faulty

    fault = Fault("on_compass", "nowhere", ("abs",), "quantized", on_compass)
    subject = Subject(session, "abs", islice(explicit_cases(session, SPECS["abs"]), 30))
    outcomes = {place.platform: place.outcome for place in Places(subject).examined(fault, {})}
    assert outcomes == {"compass": KILLED, "ideal": UNDECIDED}
    listed = {("on_compass", "abs", platform): "a reason" for platform in ("compass", "ideal")}
    outcomes = {place.platform: place.outcome for place in Places(subject).examined(fault, listed)}
    assert outcomes == {"compass": STALE, "ideal": WITHOUT}


def test_only_rows_that_name_platforms_are_rewritten(tmp_path: Path):
    whole = '{"fault": "f", "ops": ["add"], "reason": "r"}'
    old = '{"fault": "g", "ops": ["add"], "platforms": ["ort"], "reason": "gone"}'
    silent = {("g", op, platform): "why" for op in ("mul", "sub") for platform in ("ideal", "ort")} | {
        ("h", "mul", "ort"): "w"
    }
    (tmp_path / "faults").mkdir()
    file = tmp_path / "faults" / "without_effect.jsonl"
    file.write_text(with_places(f"{whole}\n{old}\n", silent))
    assert len(file.read_text().splitlines()) == 3
    assert read_places(tmp_path) == {("f", "add", EVERYWHERE): "r", **silent}
