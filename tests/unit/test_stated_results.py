"""A defect that states what its engine computes excuses that alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from quantizer.conformance.judging.stated_results import is_as_stated, stated_platform
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.stored.cases import read_replay, target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.defects import Defect, check_defects
from quantizer.numerics.qparams import Staged

ROOT = Path(__file__).parents[2]
ROOMS = ROOT / "quantizer/platforms"
Codes = torch.Tensor


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(Options(root=ROOT, platforms=("float32_any_order",)))


def defect_of(session: Session, platform: str, name: str) -> Defect:
    return next(d for d in session.library.platforms[platform].defects if d.id == name)


def trial_of(session: Session, platform: str, defect: Defect) -> Trial:
    """Return the trial of the defect's stored case."""
    room = {"tflite_ref": "litert", "float32_any_order": "float32"}[platform]
    case = read_replay(ROOMS / room / "cases" / defect.case).case
    return Trial(target_of(session.library, case, defect.case), case, session.engine)


def with_result(trial: Trial, change: Callable[[Codes], Codes]) -> Trial:
    """Return the trial with the result of an engine that is *change* of our functions'."""
    other = Trial(trial.target, trial.case, trial.engine)
    other.outcome = Staged(change(trial.outcome.codes.clone()), {})
    return other


def beside(codes: Codes) -> Codes:
    """Move the first code by one."""
    codes.view(-1)[0] += 1 if codes.view(-1)[0] < 100 else -1
    return codes


@pytest.mark.parametrize(
    "name", ["two_roundings", "two_roundings_of_a_sum", "multipliers_of_16_bits", "ratios_in_float64"]
)
def test_another_arithmetic_excuses_its_own_codes_alone(session: Session, name: str):
    defect = defect_of(session, "tflite_ref", name)
    trial = trial_of(session, "tflite_ref", defect)
    assert defect.computes is not None
    stated = Trial(
        trial.under_platform(stated_platform(trial.target.platform, defect.computes)).target, trial.case, trial.engine
    )
    assert not torch.equal(stated.outcome.codes, trial.outcome.codes), "the stored case does not show it"
    assert is_as_stated(defect, with_result(stated, lambda codes: codes), "arithmetic")
    as_engine = with_result(trial, lambda _: stated.outcome.codes)
    assert is_as_stated(defect, as_engine, "arithmetic")
    assert not is_as_stated(defect, with_result(as_engine, beside), "arithmetic")
    assert not is_as_stated(defect, trial, "arithmetic"), "what the platform computes is not the defect"


def test_a_distance_excuses_codes_next_to_the_platform_s(session: Session):
    defect = defect_of(session, "tflite_ref", "tables_of_softmax")
    trial = trial_of(session, "tflite_ref", defect)
    assert is_as_stated(defect, with_result(trial, beside), "arithmetic")
    assert not is_as_stated(defect, with_result(trial, lambda codes: beside(beside(codes))), "arithmetic")


def test_multiples_excuse_the_sums_of_the_changed_operand_alone(session: Session):
    defect = defect_of(session, "float32_any_order", "halved_weights")
    trial = trial_of(session, "float32_any_order", defect)
    halved = {**trial.codes, "weight": 2 * (trial.codes["weight"].double() / 2).round().to(torch.int64)}
    assert not torch.equal(halved["weight"], trial.codes["weight"])
    wrong = trial.run(trial.call, halved, trial.parameters).codes
    assert not torch.equal(wrong, trial.outcome.codes), "the stored case does not show it"
    as_engine = with_result(trial, lambda _: wrong)
    assert is_as_stated(defect, as_engine, "arithmetic")
    assert not is_as_stated(defect, with_result(as_engine, beside), "arithmetic")


@pytest.mark.parametrize(
    ("name", "excused"), [("exponential_minus_one", False), ("reference_softplus_overflows", True)]
)
def test_an_error_excuses_the_elements_that_it_states_alone(session: Session, name: str, excused: bool):
    defect = defect_of(session, "float32_any_order", name)
    trial = trial_of(session, "float32_any_order", defect)
    place = int(trial.y_hat.argmax()) if excused else 0
    wrong = trial.outcome.codes.clone()
    wrong.view(-1)[place] = 127 if wrong.view(-1)[place] < 100 else -128
    assert is_as_stated(defect, with_result(trial, lambda codes: codes), "arithmetic")
    assert is_as_stated(defect, with_result(trial, lambda _: wrong), "arithmetic") == excused
    lowest = trial.outcome.codes.clone()
    lowest.view(-1)[int(trial.y_hat.argmin())] = 100
    assert not is_as_stated(defect, with_result(trial, lambda _: lowest), "arithmetic")


def test_a_defect_that_states_nothing_excuses_every_result(session: Session):
    defect = defect_of(session, "tflite_ref", "shift_of_tanh")
    assert is_as_stated(defect, with_result(trial_of(session, "tflite_ref", defect), beside), "arithmetic")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({}, "says nothing"),
        ({"multiples": {"weight": 2}, "within": 1}, "declare two defects"),
        ({"requantize": {"sum": "exact"}}, ""),
    ],
)
def test_a_statement_is_checked_where_it_is_declared(stated: dict[str, Any], said: str):
    defect = Defect.model_validate(
        {
            "id": "made_up",
            "predicate": "True",
            "checks": ["arithmetic"],
            "reason": "made up",
            "case": "one.json",
            "engine": "some",
            "versions": ["1"],
            "computes": stated,
        }
    )
    assert [said in finding.text for finding in check_defects([defect], "defects")] == ([True] if said else [])
    ours = defect.model_copy(update={"engine": None, "versions": []})
    assert any(finding.location[-1] == "computes" for finding in check_defects([ours], "defects"))
