"""Shrinking leaves a legal graph without traces of removed operands."""

from pathlib import Path

import pytest

from quantizer.conformance.failures.message import describe
from quantizer.conformance.failures.shrink import MAX_KEPT, shrink
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.stored.fitting import check_case, target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.verdict import failure

SESSION = open_session(Options(root=Path.cwd()))


def four_operands() -> Case:
    spec = SESSION.library.spec("concat")
    target = next(t for t in SESSION.all_targets(spec) if t.id == "concat-a8-ideal")
    return example_case(target, next(e for e in spec.examples if e.id == "fourth_operand_ties"))


@pytest.mark.parametrize(("kept", "left"), [("d", {"a", "b", "c", "d"}), ("c", {"a", "b", "c"}), ("b", {"a", "b"})])
def test_shrinking_removes_operands_after_their_dependents(kept, left):
    case = four_operands()
    target = target_of(SESSION.library, case, "here")
    smallest = shrink(target, case, lambda candidate: kept in candidate.shapes)
    assert set(smallest.shapes) == left
    assert set(smallest.ranges) == left | {"y"}


def test_a_failure_shows_only_operands_of_the_graph():
    whole = four_operands()
    case = whole.but(shapes={name: shape for name, shape in whole.shapes.items() if name != "d"})
    trial = Trial(target_of(SESSION.library, case, "here"), case, SESSION.engine)
    verdicts = [failure("arithmetic", "so"), *judge(trial)]
    text = describe("item", case, trial, verdicts, rerun="-", replay="-")
    assert "\n  c  " in text and "\n  d  " not in text


@pytest.mark.parametrize("op", sorted(SESSION.library.specs))
def test_every_operator_shrinks_to_a_legal_case(op):
    spec = SESSION.library.specs[op]
    target = SESSION.all_targets(spec)[0]
    cases = [example_case(target, example) for example in spec.examples]
    cases += [build_case(target, HashChoices(key(seed, "shrink", op), {})) for seed in range(4)]
    for case in cases:
        assert shrink(target, case, lambda _: False) == case
        check_case(spec, shrink(target, case, lambda _: True, runs=100))


def large(seed=3) -> tuple:
    target = next(t for t in SESSION.all_targets(SESSION.library.spec("relu")) if t.id == "relu-a8-ideal")
    case = build_case(target, HashChoices(seed, {"data": "random"}))
    return target, case.but(shapes={"x": (96, 96)})


@pytest.mark.parametrize("runs", [0, 1, 7, 40])
def test_shrinking_stays_within_its_budget(runs):
    target, case = large()
    asked = []
    shrink(target, case, lambda smaller: bool(asked.append(smaller)), runs=runs)
    assert len(asked) <= runs
    asked.clear()
    shrink(target, case, lambda smaller: asked.append(smaller) is None and len(asked) % 2 == 0, runs=runs)
    assert len(asked) <= runs


def test_a_case_lists_a_limited_number_of_elements():
    """A failure that needs most of its elements keeps all of its data."""
    target, case = large()

    def needs_most(smaller):
        return smaller.shapes == case.shapes and all(len(kept) > MAX_KEPT for kept in smaller.data.kept.values())

    assert shrink(target, case, needs_most, runs=60).data.kept == {}

    def needs_few(smaller):
        return smaller.shapes == case.shapes and all(len(kept) > 100 for kept in smaller.data.kept.values())

    assert 100 < len(shrink(target, case, needs_few, runs=60).data.kept["x"]) <= MAX_KEPT
