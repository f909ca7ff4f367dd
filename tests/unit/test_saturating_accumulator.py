"""A saturating accumulator is judged by what any order of additions may leave; a kernel that does not saturate is found."""

import dataclasses
from pathlib import Path

import pytest
import torch

from quantizer.conformance.checks.accumulators import held_sums, leaves_accumulator, order_decides
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.engine import engine
from quantizer.conformance.failures.element import element_lines, row
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.case_classes import deep
from quantizer.conformance.generation.case_classes.deep import cancelling_and_wide, leaves
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.judging.recorder import LEFT, Recorder
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platforms import Platform
from quantizer.core.record import Record
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
OPS = ("conv2d", "fully_connected", "matmul")


def targets(op: str, bits: int = 18):
    for target in SESSION.all_targets(SESSION.library.spec(op)):
        if target.platform.platform == "ideal" and target.scheme.name in ("w8a8", "a8"):
            accumulator = target.platform.accumulator.model_copy(update={"bits": bits, "overflow": "saturate"})
            yield dataclasses.replace(target, platform=target.platform.model_copy(update={"accumulator": accumulator}))


def verdicts(op: str):
    for target in targets(op):
        for index, data in enumerate(("random", "saturation", "corners", "accumulator_limit") * 6):
            row = {"data": data} if data in target.spec.data else {}
            case = build_case(target, HashChoices(key(index, "saturating", target.id), row))
            yield from judge(Trial(target, case, SESSION.engine), ("arithmetic",))


@pytest.mark.parametrize("op", OPS)
def test_a_saturated_final_sum_passes(op: str):
    found = list(verdicts(op))
    assert [v.worst for v in found if v.failing] == []
    assert all(v.status == "pass" for v in found)


def without_saturation(function):
    def quantized(*operands, parameters, **attrs):
        accumulator = parameters.platform.accumulator.model_copy(update={"overflow": "unbounded"})
        platform = parameters.platform.model_copy(update={"accumulator": accumulator})
        return function(*operands, parameters=dataclasses.replace(parameters, platform=platform), **attrs)

    return quantized


@pytest.mark.parametrize("op", OPS)
def test_a_kernel_that_does_not_saturate_is_found(op: str):
    function = REGISTRY.find(op, "quantized", "ideal").function
    with REGISTRY.overridden(op, "quantized", without_saturation(function), "ideal"):
        assert any(v.failing for v in verdicts(op))


@pytest.mark.parametrize("op", OPS)
def test_a_case_overflows_a_24_bit_accumulator(op: str):
    for target in targets(op, 24):
        last = Trial(target, cancelling_and_wide(target)[-1], SESSION.engine)
        assert leaves_accumulator(last)
        recorder = Recorder(Record("item", op, "cases", "passed"))
        recorder.add(last, judge(last))
        assert LEFT in recorder.coverage
        assert LEFT not in recorder.record("passed", {LEFT}).gaps


@pytest.mark.parametrize("first", [None, {"fraction_bits": 4, "rounding": "half_toward_zero"}])
@pytest.mark.parametrize("op", OPS)
def test_an_accumulator_saturating_one_early_is_found_at_both_ends(op: str, first: dict[str, object] | None):
    """A unit of a sum of 20 bits is a thousandth of a code: only scales that are solved for it show it."""
    (target,) = targets(op, 20)
    own = {"requantize": {"default": "multiplier_shift"}, "first_rounding": first}
    own["multiplier"] = {"bits": 24, "max_bits": 24, "max_shift": 40}
    wide = dataclasses.replace(target, platform=Platform.model_validate(target.platform.model_dump() | own))
    cases = cancelling_and_wide(wide)
    assert not [v.worst for case in cases if (v := arithmetic(Trial(wide, case, SESSION.engine))).failing]
    for bound in ((-(1 << 19), (1 << 19) - 2), (1 - (1 << 19), (1 << 19) - 1)):
        early = [Trial(wide, case, Clamped(*bound)) for case in cases]
        assert any(arithmetic(trial).failing for trial in early), bound


class Clamped:
    """An engine whose sums are clamped to narrower bounds before they are multiplied."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __getattr__(self, name: str) -> object:
        return getattr(SESSION.engine, name)

    def run(self, call, codes, parameters):
        function = REGISTRY.find(call.spec.op, "accumulate", "ideal").function

        def narrow(*operands, **named):
            return function(*operands, **named).clamp(self.low, self.high)

        with REGISTRY.overridden(call.spec.op, "accumulate", narrow, "ideal"):
            return SESSION.engine.run(call, codes, parameters)


def test_an_accumulator_that_no_case_overflows_is_a_gap():
    """A user's operator has no constructed case: its record says that the accumulator is not judged."""
    (target,) = targets("matmul", 24)
    assert leaves(target) and not any(leaves(wide) for wide in targets("matmul", 32))
    case = build_case(target, HashChoices(key(0, target.id), {"data": "random"}))
    recorder = Recorder(Record("item", "matmul", "cases", "passed"))
    trial = Trial(target, case, SESSION.engine)
    recorder.add(trial, judge(trial))
    assert LEFT in recorder.record("passed", {LEFT}).gaps


def saturating_matmul(order: int):
    """Return a matrix product whose accumulator is cut after each addition, in the order of the terms or in reverse."""

    def quantized(a, b, *, parameters):
        rescale, out, most = parameters.rescale, parameters.outputs["y"], 1 << 17
        left, right = a - parameters.inputs["a"].zero_point, b - parameters.inputs["b"].zero_point
        total = torch.zeros((), dtype=torch.int64)
        for k in range(left.shape[-1])[::order]:
            total = (total + left[..., :, k, None] * right[..., None, k, :]).clamp(-most, most - 1)
        numbers = torch.round(total.double() * rescale.mantissa / rescale.divisor).long()
        return (numbers + out.zero_point).clamp(out.qmin, out.qmax)

    return quantized


@pytest.mark.parametrize("order", [1, -1])
def test_a_kernel_saturating_at_each_addition_passes_in_any_order(order: int):
    with REGISTRY.overridden("matmul", "quantized", saturating_matmul(order), "ideal"):
        assert [v.worst for v in verdicts("matmul") if v.failing] == []


@pytest.mark.parametrize("op", OPS)
def test_a_case_overflows_an_accumulator_of_over_4096_products(op: str):
    for target in targets(op, 28):
        assert leaves_accumulator(Trial(target, cancelling_and_wide(target)[-1], SESSION.engine))


@pytest.mark.parametrize("bits", [20, 24])
@pytest.mark.parametrize("op", OPS)
def test_a_sum_may_overflow_a_room_accumulator_and_return(monkeypatch: pytest.MonkeyPatch, op: str, bits: int):
    """Its oracle saturates the whole sum; a kernel that saturates at each addition gives other codes."""
    monkeypatch.setattr(deep, "has_oracle", lambda _: True)
    for target in targets(op, bits):
        trial = Trial(target, cancelling_and_wide(target)[-1], SESSION.engine)
        limit = 1 << (bits - 1)
        assert trial.case.data.set == "returning"
        assert ((abs(trial.sums) < limit) & (trial.sum_magnitudes > 2 * limit)).any()


def test_a_failure_shows_the_accumulator_limits():
    """A sum that leaves it is cut; terms of both signs leave a range, by the order of additions."""
    (target,) = targets("fully_connected")
    said = set()
    for index, data in enumerate(("accumulator_limit", "corners") * 6):
        case = build_case(target, HashChoices(key(index, "saturating", target.id), {"data": data}))
        trial = Trial(target, case, SESSION.engine)
        found = [line for line in element_lines(trial, (0, 0)) if "in 18 bits it saturates: " in line]
        least, most, _ = held_sums(trial, trial.sums, trial.sum_magnitudes)
        one, other = int(least[0, 0]), int(most[0, 0])
        held = f"{one}" if one == other else f"{one}..{other}, by the order of additions"
        assert found == ([row("", f"in 18 bits it saturates: {held}")] if {one, other} != {trial.sums[0, 0]} else [])
        said |= {"order" if one != other else "end" for _ in found}
    assert said == {"order", "end"}


class Of:
    """A real engine that computes matmul by *function*."""

    def __init__(self, function) -> None:
        self.function = function

    def __getattr__(self, name: str) -> object:
        return getattr(SESSION.engine, name)

    def run(self, *asked):
        with REGISTRY.overridden("matmul", "quantized", self.function, "ideal"):
            return SESSION.engine.run(*asked)


@pytest.mark.parametrize("order", [1, -1])
def test_an_engine_that_saturates_at_each_addition_agrees_in_any_order(order: int):
    """The check `engine` leaves codes that depend on the order of additions to `arithmetic`."""
    (target,) = targets("matmul")
    trials = [Trial(target, case, Of(saturating_matmul(order))) for case in cancelling_and_wide(target)]
    assert any(order_decides(trial).any() for trial in trials)
    assert not [v.worst for trial in trials if (v := engine(trial)).failing]


def one_more(function):
    def quantized(*operands, parameters, **attrs):
        return function(*operands, parameters=parameters, **attrs) + 1

    return quantized


def test_an_engine_one_code_off_fails_with_a_saturating_accumulator():
    (target,) = targets("matmul")
    case = build_case(target, HashChoices(key(0, "saturating", target.id), {"data": "random"}))
    assert engine(Trial(target, case, Of(saturating_matmul(1)))).status == "pass"
    assert engine(Trial(target, case, Of(one_more(saturating_matmul(1))))).failing
