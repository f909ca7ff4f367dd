"""Batches of one structure with several ranges and data sets: each trial is judged as if alone."""

import json
from collections import Counter
from pathlib import Path

import pytest

from quantizer.conformance.campaign import work
from quantizer.conformance.campaign.plan import Plan
from quantizer.conformance.generation.batches import RANGES, member
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge, judged
from quantizer.conformance.judging.schedule import OF_BATCHES, Schedule
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.verdict import EVERY
from quantizer.numerics.qparams import Staged
from quantizer.ops import REGISTRY
from quantizer.tiling.stacks import parts

SESSION = open_session(Options(root=Path.cwd()))
TARGETS = {t.id: t for spec in SESSION.library.specs.values() for t in SESSION.all_targets(spec)}
CHOSEN = [
    "conv2d-w8a8-ideal",
    "conv2d-w8a8-compass",
    "add-a8-ort",
    "sigmoid-a8-ideal",
    "softmax-a8-compass",
    "slice-a8-ideal",
]
ON_ALL = ("parameters", "float", "arithmetic", "accuracy")


def structure(case: Case) -> tuple:
    return {n: len(s) for n, s in case.shapes.items()}, case.attrs, case.activation, case.order


@pytest.mark.parametrize("name", CHOSEN)
def test_a_batch_shares_its_structure_but_not_ranges_and_data(name):
    target = TARGETS[name]
    cases = [member(target, 7, place, 1) for place in range(2 * RANGES)]
    for batch in (cases[:RANGES], cases[RANGES:]):
        assert all(structure(case) == structure(batch[0]) and case.shapes == batch[0].shapes for case in batch)
        assert len({case.digest for case in batch}) == RANGES
        assert len({case.data.set for case in batch}) == min(RANGES, len(target.spec.data))
    free = [case.ranges for case in cases if case.data.set != "small_integers"]
    assert all(one != other for i, one in enumerate(free) for other in free[:i]), "every trial has other parameters"
    assert structure(cases[0]) != structure(cases[RANGES]) or cases[0].shapes != cases[RANGES].shapes


@pytest.mark.parametrize("name", CHOSEN)
def test_a_unit_counts_the_verdicts_of_its_single_trials(name):
    """A unit reports as many verdicts of each kind as its data sets and ranges judged one by one."""
    target, seed, count = TARGETS[name], 11, 40
    plan = Plan((name,), count, seed)
    found = json.loads(work.run_unit(plan.to_json(), 0, name, count))
    counted: dict[str, Counter] = {check: Counter() for check in ON_ALL}
    place, left = 0, count
    while left > 0:
        case = member(target, work.key(seed, "0", name), place, min(left, 16))
        alone = [case] if case.data.stack is None else [part.case for part in parts(target.spec, case)]
        for one in alone:
            for verdict in judge(Trial(target, one, SESSION.engine), ON_ALL):
                counted[verdict.check][verdict.status] += 1
        place, left = place + 1, left - len(alone)
    assert found["examples"] == count
    assert {check: found["checks"][check] for check in ON_ALL if counted[check]} == {
        check: dict(statuses) for check, statuses in counted.items() if statuses
    }


def test_a_fault_under_one_range_fails_only_that_trial():
    target = TARGETS["conv2d-w8a8-ideal"]
    cases = [member(target, 3, place) for place in range(RANGES)]
    marked = Trial(target, cases[2], SESSION.engine).parameters.inputs["x"].scale
    honest = REGISTRY.get("conv2d", "quantized", "ideal")

    def wrong(*args, parameters, **named):
        made = honest(*args, parameters=parameters, **named)
        codes = made.codes if isinstance(made, Staged) else made
        if parameters.inputs["x"].scale != marked:
            return codes
        y = parameters.outputs["y"]
        return (codes + 1).clamp(y.qmin, y.qmax)

    with REGISTRY.overridden("conv2d", "quantized", wrong, "ideal"):
        failing = [
            any(verdict.failing for _, several in judged(Trial(target, case, SESSION.engine)) for verdict in several)
            for case in cases
        ]
    assert failing == [False, False, True, False]


def test_every_check_judges_each_structure_of_a_campaign_once():
    target = TARGETS["conv2d-w8a8-ideal"]
    checks = Schedule(target, EVERY, OF_BATCHES)
    ran = [checks.checks(member(target, 5, place)) for place in range(40 * RANGES)]
    firsts, others = ran[::RANGES], [checks for place, checks in enumerate(ran) if place % RANGES]
    assert all(set(checks) >= set(EVERY) - {"round_trip", "engine"} for checks in firsts)
    assert all(set(checks) >= set(ON_ALL) for checks in others)
    share = sum("repeat" in checks for checks in others) / len(others)
    assert 0.1 < share < 0.4


def test_a_coarse_softmax_quotient_passes_accuracy_on_compass():
    """Of 128 rows of a short axis the quotient comes first, in as few bits as the largest exponential leaves."""
    target = TARGETS["softmax-a8-compass"]
    case = build_case(target, HashChoices(3, {"data": "random"}))
    case = case.but(shapes={"x": (4, 80, 2, 4)}, attrs={"axis": 0}, ranges={"x": (-4.0, 4.0), "y": (0.0, 0.99)})
    found = judge(Trial(target, case, SESSION.engine), ON_ALL)
    assert [verdict.status for verdict in found] == ["pass"] * len(ON_ALL)
