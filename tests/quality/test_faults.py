"""Does the gate find the bug? Every fault of the catalogue is killed; the unchanged operators raise no alarm."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.faults import CATALOGUE, Fault, gate_cases, has_effect, kill, pairs
from quantizer.conformance.faults.changes import handed
from quantizer.conformance.judge import judge
from quantizer.conformance.options import Options
from quantizer.conformance.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trial import Trial
from quantizer.core.case import Case
from quantizer.core.library import load_library
from quantizer.numerics.qparams import Parameters
from quantizer.ops import FunctionKind

Cases = dict[str, list[tuple[Target, Case]]]
SPECS = load_library().specs
PAIRS = pairs(SPECS.values())


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(Options(root=Path.cwd()))


@pytest.fixture(scope="module")
def cases(session: Session) -> Cases:
    return {op: list(gate_cases(session, op)) for op in SPECS}


@pytest.mark.parametrize(("fault", "op"), PAIRS, ids=[f"{fault.id}-{op}" for fault, op in PAIRS])
def test_every_fault_is_found_by_the_explicit_cases_of_the_gate(session: Session, cases: Cases, fault: Fault, op: str):
    if not isinstance(fault.where, tuple) and not has_effect(session, fault, op, cases[op]):
        pytest.skip("it changes nothing in the operator")
    assert kill(session, fault, op, cases[op]) is not None


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.id)
def test_no_fault_of_the_catalogue_changes_nothing_everywhere(session: Session, cases: Cases, fault: Fault):
    assert any(has_effect(session, fault, op, cases[op]) for known, op in PAIRS if known is fault)


@pytest.mark.parametrize("op", SPECS)
def test_unchanged_operators_raise_no_alarm(session: Session, cases: Cases, op: str):
    for target, case in cases[op]:
        failing = [v.check for v in judge(Trial(target, case, session.engine)) if v.failing]
        assert not failing, (target.id, case.to_json())


def test_the_catalogue_is_large_and_its_names_are_unique():
    assert len(CATALOGUE) >= 20
    assert len({fault.id for fault in CATALOGUE}) == len(CATALOGUE)
    assert {op for fault in CATALOGUE if isinstance(fault.where, tuple) for op in fault.where} <= set(SPECS)


def test_pairs_come_in_the_order_of_the_catalogue_then_of_the_specs():
    order = [(CATALOGUE.index(fault), list(SPECS).index(op)) for fault, op in PAIRS]
    assert order == sorted(order)


@pytest.mark.parametrize("op", SPECS)
@pytest.mark.parametrize("kind", ["reference", "quantize", "quantized"])
def test_planting_a_function_that_changes_nothing_is_not_found(
    session: Session, cases: Cases, op: str, kind: FunctionKind
):
    nothing = Fault("nothing", "nowhere", (op,), kind, lambda original: original)
    assert not has_effect(session, nothing, op, cases[op])
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
