"""Does the gate find the bug? Every fault of the catalogue is killed; the unchanged operators raise no alarm."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.faults import ALL, CATALOGUE, Fault, gate_cases, kill
from quantizer.conformance.faults.changes import handed
from quantizer.conformance.judge import judge
from quantizer.conformance.options import Options
from quantizer.conformance.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trial import Trial
from quantizer.core.case import Case
from quantizer.numerics.qparams import Parameters
from quantizer.ops import FunctionKind

Cases = dict[str, list[tuple[Target, Case]]]


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(Options(root=Path.cwd()))


@pytest.fixture(scope="module")
def cases(session: Session) -> Cases:
    return {op: list(gate_cases(session, op)) for op in ALL}


@pytest.mark.parametrize(
    ("fault", "op"),
    [(f, op) for f in CATALOGUE for op in f.ops],
    ids=[f"{f.id}-{op}" for f in CATALOGUE for op in f.ops],
)
def test_every_fault_is_found_by_the_explicit_cases_of_the_gate(session: Session, cases: Cases, fault: Fault, op: str):
    assert kill(session, fault, op, cases[op]) is not None


@pytest.mark.parametrize("op", ALL)
def test_unchanged_operators_raise_no_alarm(session: Session, cases: Cases, op: str):
    for target, case in cases[op]:
        failing = [v.check for v in judge(Trial(target, case, session.engine)) if v.failing]
        assert not failing, (target.id, case.to_json())


def test_the_catalogue_is_large_and_its_names_are_unique():
    assert len(CATALOGUE) >= 20
    assert len({fault.id for fault in CATALOGUE}) == len(CATALOGUE)
    assert {op for fault in CATALOGUE for op in fault.ops} == set(ALL)


@pytest.mark.parametrize("op", ALL)
@pytest.mark.parametrize("kind", ["reference", "quantize", "quantized"])
def test_planting_a_function_that_changes_nothing_is_not_found(
    session: Session, cases: Cases, op: str, kind: FunctionKind
):
    nothing = Fault("nothing", "nowhere", (op,), kind, lambda original: original)
    assert kill(session, nothing, op, cases[op]) is None


def _twice_the_scale(parameters: Parameters) -> Parameters:
    y = parameters.outputs["y"]
    return replace(parameters, outputs={"y": replace(y, scale=y.scale * 2)})


def _other_table(parameters: Parameters) -> Parameters:
    table = parameters.tables["exp"]
    return replace(parameters, tables={"exp": replace(table, entries=table.entries // 2)})


@pytest.mark.parametrize("change", [_twice_the_scale, _other_table])
def test_a_declared_defect_excuses_only_what_the_real_system_does(session: Session, cases: Cases, change):
    spoiled = [(target, case) for target, case in cases["softmax"] if target.id == "softmax-a16-compass"]
    fault = Fault("spoiled", "handed", ("softmax",), "quantize", handed(change))
    assert kill(session, fault, "softmax", spoiled) is not None
