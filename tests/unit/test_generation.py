"""Cases: deterministic, legal, covering, and hashed by coordinate."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.generation.builder import (
    build_case,
    coverage,
    covering_rows_of,
    factors,
    tile_plan,
    wanted_coverage,
)
from quantizer.conformance.generation.choice_sources import HashChoices, HypothesisChoices
from quantizer.conformance.generation.covering import covering_rows
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import bits, integers, key, splitmix64, uniform
from quantizer.conformance.judging.dataset_assertions import hits_target
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe
from quantizer.core.shapes import infer_shapes

SESSION = open_session(Options(root=Path.cwd()))
OPS = list(SESSION.library.specs)
TARGETS = [target for spec in SESSION.library.specs.values() for target in SESSION.all_targets(spec)]


def targets_of(op):
    return [target for target in TARGETS if target.spec.op == op]


def test_splitmix64_agrees_with_published_values():
    """First outputs of the reference generator seeded with 1234567 (Vigna, splitmix64.c)."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        states = np.uint64(1234567) + golden * np.arange(5, dtype=np.uint64)
        got = splitmix64(states)
    assert got.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_a_list_of_axes_often_holds_one_or_leaves_one_out():
    """Any one of them, whatever its place."""
    domain = SESSION.library.spec("reduce_sum").attrs["axes"]
    drawn = [draw("axes", domain, HashChoices(seed, {}), {"shape": (2, 3, 4, 5)}) for seed in range(400)]
    assert {axes for axes in drawn if len(axes) == 1} == {(0,), (1,), (2,), (3,)}
    assert sum(len(axes) == 1 for axes in drawn) > len(drawn) // 3
    assert len({axes for axes in drawn if len(axes) == 3}) == 4 and all(list(a) == sorted(a) for a in drawn)


def test_cropping_a_shape_keeps_its_values():
    whole, part = uniform(3, "x", (2, 4, 5, 6)), uniform(3, "x", (1, 3, 5, 2))
    assert (whole[:1, :3, :5, :2] == part).all()
    assert (uniform(3, "x", (4, 4)) != uniform(4, "x", (4, 4))).any()
    assert (uniform(3, "x", (4, 4)) != uniform(3, "w", (4, 4))).any()


def test_hashed_numbers_are_spread_evenly():
    values = integers(7, "x", (40, 50, 50), 0, 9)
    counts = np.bincount(values.ravel(), minlength=10)
    assert counts.min() > 9_500 and counts.max() < 10_500  # 100,000 draws: six standard deviations are 569
    assert np.unique(bits(7, "x", (100, 100))).size == 10_000


@pytest.mark.parametrize("op", OPS)
def test_covering_rows_contain_every_pair_of_factor_values(op):
    spec = SESSION.library.spec(op)
    found = factors(spec, [target.id for target in SESSION.all_targets(spec)])
    table = covering_rows(found)
    met = {(a, row[a], b, row[b]) for row in table for a, b in itertools.combinations(sorted(found), 2)}
    wanted = {(a, x, b, y) for a, b in itertools.combinations(sorted(found), 2) for x in found[a] for y in found[b]}
    assert met == wanted
    longest = sorted((len(values) for values in found.values()), reverse=True)
    assert len(table) <= 1.5 * longest[0] * longest[1]


@pytest.mark.parametrize("op", OPS)
def test_covering_rows_contain_every_pair_of_bins_per_platform(op):
    """Code of one platform sees the cases of that platform only."""
    spec = SESSION.library.spec(op)
    targets = SESSION.all_targets(spec)
    found = factors(spec, ["-"])
    names = sorted(found.keys() - {"target"})
    wanted = {(a, x, b, y) for a, b in itertools.combinations(names, 2) for x in found[a] for y in found[b]}
    for platform in {target.platform.platform for target in targets}:
        own = [row for t in targets if t.platform.platform == platform for row in covering_rows_of(targets, t)]
        met = {
            (a, row[a], b, row[b]) for row in own for a, b in itertools.combinations(names, 2) if {a, b} <= row.keys()
        }
        assert wanted <= met


@pytest.mark.parametrize("seeds", [2, pytest.param(5, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("op", OPS)
def test_cases_are_legal_repeatable_and_round_trip_through_json(op, seeds):
    for target, seed in itertools.product(targets_of(op), range(seeds)):
        case = build_case(target, HashChoices(key(seed, target.id), {}))
        again = build_case(target, HashChoices(key(seed, target.id), {}))
        assert case == again, target.id
        assert Case.from_json(case.to_json(), "here") == case, target.id
        infer_shapes(target.spec, case.shapes, case.attrs)
        first, second = materialise(target, case), materialise(target, case)
        assert all(first[name].equal(second[name]) for name in first), (target.id, seed)
        assert all(values.isfinite().all() for values in first.values()), (target.id, seed)


@pytest.mark.nightly  # the gate's spec items ask for bins, data sets and tiles too
@pytest.mark.parametrize("op", OPS)
def test_the_rows_of_all_targets_reach_every_declared_bin(op):
    """A bin, data set, order or tile class that no case of the gate reaches would be a silent gap."""
    spec = SESSION.library.spec(op)
    targets = SESSION.all_targets(spec)
    reached = set()
    for target in targets:
        for index, row in enumerate(covering_rows_of(targets, target)):
            reached |= coverage(target, build_case(target, HashChoices(key(index, target.id), row)))
    assert wanted_coverage(spec) - reached == set()


DIRECTED = ("ties", "saturation", "accumulator_limit", "scale_spread", "zero_point_extremes")


EVERY_CODE = [op for op, spec in SESSION.library.specs.items() if any(e.data == "every_code" for e in spec.examples)]


def reached(trial):
    """Yield codes and parameters of every activation operand; for operators of real inputs, those of the output."""
    for name in trial.spec.activations:
        if trial.spec.inputs[name].kind == "value":
            yield trial.codes[name], trial.qparams(name)
        elif trial.spec.inputs[name].kind == "real":
            yield trial.outcome.codes, trial.output


@pytest.mark.parametrize("op", EVERY_CODE)
def test_every_code_data_contains_both_ends_and_landmark_codes(op):
    for target in targets_of(op):
        for example in (example for example in target.spec.examples if example.data == "every_code"):
            for codes, params in reached(Trial(target, example_case(target, example), SESSION.engine)):
                ends = (int(codes.min()), int(codes.max()))
                assert ends == (params.qmin, params.qmax), (target.id, example.id)
                around = {0, 1, -1, 255, 256, -256, -257, params.qmin + 1, params.qmax - 1, int(params.zero_point) + 1}
                wanted = {code for code in around if params.qmin <= code <= params.qmax}
                if codes.numel() >= 256:
                    assert wanted <= set(codes.flatten().tolist()), (target.id, example.id)


AIMED = [op for op, spec in SESSION.library.specs.items() if set(DIRECTED) & set(spec.data)]


@pytest.mark.parametrize("each", [4, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("op", AIMED)
def test_directed_data_sets_reach_their_target(op, each):
    """Four of 24 cases at least; after the fourth no more are asked."""
    for target, data in itertools.product(targets_of(op)[::each], DIRECTED):
        if data not in target.spec.data:
            continue
        cases = (build_case(target, HashChoices(key(seed, data), {"data": data})) for seed in range(24))
        hits = (case for case in cases if hits_target(Trial(target, case, SESSION.engine)))
        assert len([*itertools.islice(hits, 4)]) == 4, (target.id, data)


def test_plans_stay_small_and_cut_only_legal_axes():
    for target in TARGETS:
        for seed in range(2):
            chooser = HashChoices(key(seed, target.id), {})
            case = build_case(target, chooser)
            plan = tile_plan(target, case, chooser)
            assert all(size >= 1 for size in plan.sizes.values())


def test_the_simplest_choices_give_a_legal_case_for_every_target():
    for target in TARGETS:
        case = build_case(target, HypothesisChoices(lambda low, high: low))
        infer_shapes(target.spec, case.shapes, case.attrs)
        largest = build_case(target, HypothesisChoices(lambda low, high: high))
        infer_shapes(target.spec, largest.shapes, largest.attrs)


def test_kept_coordinates_leave_all_other_elements_zero():
    target = TARGETS[0]
    case = build_case(target, HashChoices(1, {"data": "random"}))
    name = next(iter(case.shapes))
    place = tuple(0 for _ in case.shapes[name])
    reduced = case.but(data=DataRecipe(case.data.set, case.data.seed, {name: (place,)}))
    values, whole = materialise(target, reduced)[name], materialise(target, case)[name]
    assert int(values.count_nonzero()) <= 1
    assert values[place] == whole[place]
