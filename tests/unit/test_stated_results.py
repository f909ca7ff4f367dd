"""A defect that states its engine's result excuses only that result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from quantizer.conformance.checks.properties import related_runs
from quantizer.conformance.judging import judge as judging
from quantizer.conformance.judging import stated_results
from quantizer.conformance.judging.stated_results import is_as_stated, stated_platform
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import TilePlan
from quantizer.core.defect_statements import check_statement
from quantizer.core.defects import Computes, Defect, check_defects
from quantizer.core.errors import EngineError
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.tiling.windows import tileable_axes

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
    "name",
    [
        "fully_connected_rounded_twice",
        "reduce_sum_rounded_twice",
        "fully_connected_multiplier_16_bits",
        "scale_ratio_in_float64",
    ],
)
def test_a_stated_arithmetic_excuses_only_its_codes(session: Session, name: str):
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
    defect = defect_of(session, "tflite_ref", "softmax_tables_differ")
    trial = trial_of(session, "tflite_ref", defect)
    assert is_as_stated(defect, with_result(trial, beside), "arithmetic")
    assert not is_as_stated(defect, with_result(trial, lambda codes: beside(beside(codes))), "arithmetic")


def test_multiples_excuse_only_sums_of_the_changed_operand(session: Session):
    defect = defect_of(session, "float32_any_order", "conv_weights_halved")
    trial = trial_of(session, "float32_any_order", defect)
    halved = {**trial.codes, "weight": 2 * (trial.codes["weight"].double() / 2).round().to(torch.int64)}
    assert not torch.equal(halved["weight"], trial.codes["weight"])
    wrong = trial.run(trial.call, halved, trial.parameters).codes
    assert not torch.equal(wrong, trial.outcome.codes), "the stored case does not show it"
    as_engine = with_result(trial, lambda _: wrong)
    assert is_as_stated(defect, as_engine, "arithmetic")
    assert not is_as_stated(defect, with_result(as_engine, beside), "arithmetic")


class HalvedWeights(BuiltinEngine):
    """Our functions with weights of halved precision; float results and later integer runs may be shifted."""

    def __init__(self, floats_off: float = 0.0, later_off: int = 0) -> None:
        self.floats_off, self.later_off, self.runs = floats_off, later_off, 0

    def run(self, call, codes, parameters):
        halved = 2 * (codes["weight"].double() / 2).round().to(torch.int64)
        found = super().run(call, {**codes, "weight": halved}, parameters)
        self.runs += 1
        return Staged(found.codes + (self.later_off if self.runs > 1 else 0), {})

    def run_float(self, call, operands):
        return super().run_float(call, operands) + self.floats_off


def halved(session: Session, engine: BuiltinEngine) -> tuple[Defect, Trial]:
    """Return the defect, and its stored case in tiles of one element along the first axis."""
    defect = defect_of(session, "float32_any_order", "conv_weights_halved")
    known = trial_of(session, "float32_any_order", defect)
    axis = next(iter(tileable_axes(known.spec, known.case.shapes, known.case.attrs)))
    return defect, Trial(known.target, known.case.but(tiles=TilePlan({axis: 1})), engine)


@pytest.mark.parametrize(("off", "excused"), [(0.0, True), (9.0, False)])
def test_no_defect_of_codes_excuses_float_tiles(session: Session, off: float, excused: bool):
    assert is_as_stated(*halved(session, HalvedWeights(floats_off=off)), "tiled") == excused


@pytest.mark.parametrize(("off", "excused"), [(0, True), (1, False)])
def test_no_defect_of_codes_excuses_runs_that_differ(session: Session, off: int, excused: bool):
    defect, trial = halved(session, HalvedWeights(later_off=off))
    _ = trial.outcome  # the first run, which is as stated
    assert is_as_stated(defect, trial, "repeat") == excused


@pytest.mark.parametrize(("off", "excused"), [(0, True), (3, False)])
def test_a_relation_is_excused_only_by_its_own_run(session: Session, off: int, excused: bool):
    defect, trial = halved(session, HalvedWeights(later_off=off))
    assert is_as_stated(defect, trial, "arithmetic"), "the first run is as stated"
    assert [*related_runs(trial)], "the case has no relation"
    assert is_as_stated(defect, trial, "properties") == excused


class Ends(BuiltinEngine):
    """An engine that raises a given exception."""

    def __init__(self, err: Exception) -> None:
        self.err = err

    def run(self, call, codes, parameters):
        raise self.err


def test_a_crashing_engine_is_not_excused(session: Session):
    assert not is_as_stated(*halved(session, Ends(EngineError("the engine ended"))), "arithmetic")


def test_an_internal_error_is_raised_and_not_excused(session: Session, monkeypatch: pytest.MonkeyPatch):
    defect, trial = halved(session, HalvedWeights())
    trial.engine.version = "1"  # type: ignore[misc] # as a real engine has one

    def broken(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(stated_results, "_changed", broken)
    with pytest.raises(KeyError, match="ours") as caught:
        is_as_stated(defect, trial, "arithmetic")
    assert "conv_weights_halved" in caught.value.__notes__[0]
    monkeypatch.setattr(judging, "known_defect", broken)
    with pytest.raises(KeyError, match="ours"):
        judging.judge(trial, ("arithmetic",))


@pytest.mark.parametrize(
    ("name", "excused"), [("tract_erf_inaccurate_near_0", False), ("reference_softplus_overflows", True)]
)
def test_a_stated_error_excuses_only_its_elements(session: Session, name: str, excused: bool):
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


def test_a_defect_without_statement_excuses_every_result(session: Session):
    defect = defect_of(session, "tflite_ref", "tanh_large_scale_wraps")
    assert is_as_stated(defect, with_result(trial_of(session, "tflite_ref", defect), beside), "arithmetic")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({}, "says nothing"),
        ({"multiples": {"weight": 2}, "within": 1}, "declare two defects"),
        ({"requantize": {"sum": "exact"}}, ""),
    ],
)
def test_lint_checks_the_statement_of_a_defect(stated: dict[str, Any], said: str):
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


@pytest.mark.parametrize(
    ("stated", "refused"),
    [({"within": 1}, ["float", "repeat"]), ({"multiples": {"weight": 2}}, ["float"]), (None, [])],
)
def test_a_statement_on_codes_excuses_only_code_checks(stated: dict[str, Any] | None, refused: list[str]):
    checks = ["float", "arithmetic", "repeat"]
    defect = Defect(
        id="made_up",
        predicate="True",
        checks=checks,
        reason="made up",
        case="one.json",
        engine="some",
        versions=["1"],
        computes=None if stated is None else Computes.model_validate(stated),
    )
    found = [finding.location for finding in check_defects([defect], "defects")]
    assert found == [("defects", 0, "checks", checks.index(name)) for name in refused]


@pytest.mark.parametrize(
    ("ops", "stated", "said"),
    [
        (["conv2d"], {"multiples": {"weights": 2}}, "conv2d has no operand 'weights'. Did you mean 'weight'"),
        (["conv2d", "relu"], {"multiples": {"weight": 2}}, "relu has no operand 'weight'"),
        (["matmul"], {"saturating_pairs": {"a": -1, "b": -2}}, "a, b are operands of matmul: only one"),
        (["matmul", "fully_connected"], {"saturating_pairs": {"x": -1, "a": -1}}, ""),
        (["conv2d"], {"saturating_pairs": {"x": 4}}, "conv2d: x has no axis 4. Known: -4 to 3"),
        (["matmul"], {"saturating_pairs": {"a": 0}}, "matmul: a has no axis 0. Known: -2 to -1"),
        (["clip"], {"whole_codes": ["lo"]}, "clip has no attribute 'lo'"),
        (["conv2d"], {"whole_codes": ["stride"]}, "'stride' is not one number"),
        (["celu"], {"off_by": "alpha * beta"}, "celu has no 'beta'"),
        (None, {"off_by": "abs(code) + x"}, "has no 'x'"),
        (["add"], {"requantize": {"linear": "exact"}}, "none of its operators is of the family 'linear'"),
        (["add"], {"requantize": {"addition": "exact"}}, ""),
    ],
)
def test_a_statement_may_name_only_existing_operands(
    session: Session, ops: list[str] | None, stated: dict[str, Any], said: str
):
    defect = Defect(
        id="made_up",
        ops=ops,
        predicate="True",
        checks=["arithmetic"],
        reason="made up",
        case="one.json",
        engine="some",
        versions=["1"],
        computes=Computes.model_validate(stated),
    )
    found = [*check_statement(defect, session.library.specs, ("defects", 0))]
    assert all(finding.location[:3] == ("defects", 0, "computes") for finding in found)
    assert (said in found[0].text) if said else not found, found
