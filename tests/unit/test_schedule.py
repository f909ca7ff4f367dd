"""Costly checks run on a sample of the gate's cases; which cases these are follows from the cases alone."""

import itertools
import math
import time
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from quantizer.conformance.generation.builder import build_case, covering_rows_of, tile_bin
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key, sample_number
from quantizer.conformance.judging.schedule import COSTLY, SCHEDULE, Schedule, is_sampled, schedule
from quantizer.conformance.run.collection import State
from quantizer.conformance.run.facts import spec_facts
from quantizer.conformance.run.items import Runner
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.profiles import PROFILES
from quantizer.conformance.setup.session import open_session
from quantizer.core.case import TilePlan
from quantizer.core.verdict import CHECKS, EVERY
from quantizer.ops import REGISTRY
from quantizer.tiling.windows import tileable_axes

SESSION = open_session(Options(root=Path.cwd()))
ON_EVERY_CASE = {"parameters", "float", "arithmetic", "accuracy", "engine"}


def target_of(name):
    (found,) = [t for t in SESSION.all_targets(SESSION.library.spec(name.split("-")[0])) if t.id == name]
    return found


TARGET = target_of("conv2d-w8a8-compass")
CASES = [example_case(TARGET, example) for example in TARGET.spec.examples] + [
    build_case(TARGET, HashChoices(key(index, TARGET.id), row))
    for index, row in enumerate(covering_rows_of(SESSION.all_targets(TARGET.spec), TARGET))
]


def of(name, cases=CASES, **kwargs):
    found = Schedule(TARGET, CHECKS, **kwargs)
    return [case for case in cases if name in found.checks(case)]


def test_checks_of_values_run_on_every_case():
    assert set(CHECKS) - SCHEDULE.keys() == ON_EVERY_CASE
    assert set(CHECKS) - set(EVERY) == COSTLY.keys()
    found = Schedule(TARGET, CHECKS)
    for case in CASES:
        checks = found.checks(case)
        assert set(checks) >= ON_EVERY_CASE
        assert sorted(checks, key=CHECKS.index) == list(checks)


def test_the_first_case_runs_all_checks_and_examples_most():
    found = Schedule(TARGET, CHECKS)
    assert found.checks(CASES[0]) == CHECKS
    for case in CASES[1 : len(TARGET.spec.examples)]:
        assert set(found.checks(case)) >= set(EVERY) - {"round_trip"}


def test_generated_cases_run_a_sampled_share_of_checks():
    drawn = [build_case(TARGET, HashChoices(key(seed, TARGET.id), {})) for seed in range(400)]
    samples = {
        name: [is_sampled(sample_number(case), name, sample) for case in drawn] for name, sample in SCHEDULE.items()
    }
    for name, sample in SCHEDULE.items():
        assert len(drawn) / sample.one_in / 2 < sum(samples[name]) < 2 * len(drawn) / sample.one_in
    assert len({tuple(found) for found in samples.values()}) == len(SCHEDULE)


def test_sampling_ignores_the_last_bits_of_a_range():
    moved = [
        case.but(ranges={name: (low, math.nextafter(high, math.inf)) for name, (low, high) in case.ranges.items()})
        for case in CASES
    ]
    first, second = Schedule(TARGET, CHECKS), Schedule(TARGET, CHECKS)
    assert [first.checks(case) for case in CASES] == [second.checks(case) for case in moved]


def classes(cases):
    spec = TARGET.spec
    plans = ((case.tiles, tileable_axes(spec, case.shapes, case.attrs)) for case in cases if case.tiles.sizes)
    return {name for plan, axes in plans for name in tile_bin(plan, axes, spec)}


def test_every_class_of_tiles_is_judged_for_each_target():
    assert len(classes(CASES)) > 3
    assert classes(of("tiled")) == classes(CASES)
    sparse = {"tiled": replace(SCHEDULE["tiled"], one_in=10**9)}
    assert classes(of("tiled", samples=sparse)) == classes(CASES)


def test_a_class_of_tiles_is_judged_again_where_it_cuts():
    """One tile of the whole output has a class, too: all five plans that erf's target judged were such tiles."""
    spec, sparse = TARGET.spec, {"tiled": replace(SCHEDULE["tiled"], one_in=10**9)}
    sizes = [(case, tileable_axes(spec, case.shapes, case.attrs)) for case in CASES]
    case, axes = next((case, axes) for case, axes in sizes if axes["n"] == 1 and axes["oh"] > 2)
    whole, cut = (case.but(tiles=TilePlan({"n": 1, "oh": size})) for size in (axes["oh"], axes["oh"] - 1))
    assert classes([cut]) <= classes([whole])
    examples = [whole] * len(spec.examples)  # which always run
    assert of("tiled", cases=[*examples, whole, cut, cut], samples=sparse) == [*examples, cut]


def test_a_structure_is_written_to_a_file_once():
    same = [CASES[0], CASES[0].but(data=replace(CASES[0].data, seed=7)), CASES[0].but(activation="relu"), CASES[0]]
    always = {"round_trip": replace(SCHEDULE["round_trip"], one_in=1)}
    assert of("round_trip", same, samples=always) == [same[0], same[2]]


@pytest.mark.parametrize(
    "asked",
    [{"profile": "dev"}, {"profile": "nightly"}, {"checks": ("tiled", "repeat")}, {"engine": "onnxruntime"}],
    ids=str,
)
def test_other_runs_sample_only_the_costliest_checks(asked):
    options = Options(root=Path.cwd(), **asked)
    assert (options.real is not None) == ("engine" in asked)
    found = schedule(TARGET, options)
    for case in CASES:
        assert set(found.checks(case)) >= set(options.checks) - COSTLY.keys()


def runner(tmp_path, name):
    target = target_of(name)
    path = SESSION.library.paths[target.spec.op]
    options = Options(root=Path.cwd(), reports=tmp_path)
    facts = spec_facts(path, path, options, target.spec, SESSION.library.positions[target.spec.op])
    state = State(
        spec=target.spec,
        name=name,
        kind="cases",
        scheme=target.scheme.name,
        platform=target.platform.platform,
        node_id=name,
        options=options,
        session=lambda: SESSION,
        facts=facts,
    )
    return Runner(state)


def test_a_run_counts_what_ran(tmp_path):
    made = runner(tmp_path, "relu-a8-ideal")
    made.rows()
    made.seeded(10)
    record = made.record("passed")
    assert {record.checks[name].passed for name in ("parameters", "float", "arithmetic")} == {record.cases}
    assert 0 < record.checks["repeat"].passed < record.cases / 2
    assert record.gaps == ()


def test_a_failing_case_runs_every_check_before_reporting(tmp_path):
    wrapped = REGISTRY.get("relu", "quantized")

    def off(x, *, parameters):
        found = wrapped(x, parameters=parameters)
        return found + 1 if x.numel() > 20 else found

    made = runner(tmp_path, "relu-a8-ideal")
    cases = [build_case(made._target, HashChoices(seed, {})) for seed in range(200)]
    small = next(case for case in cases if math.prod(case.shapes["x"]) <= 20)
    made.run(small)
    for _ in made._target.spec.examples:
        made._schedule.checks(small)
    wrong = next(
        case
        for case in cases
        if math.prod(case.shapes["x"]) > 20
        and not any(is_sampled(sample_number(case), name, sample) for name, sample in SCHEDULE.items())
    )
    with REGISTRY.overridden("relu", "quantized", off, None), pytest.raises(pytest.fail.Exception) as failed:
        made.run(wrong)
    record = made.record("failed")
    assert record.checks["arithmetic"].failed == 1
    ran = {name: record.checks[name].passed + record.checks[name].failed for name in ("repeat", "round_trip")}
    assert ran == {"repeat": 2, "round_trip": 2}
    assert "repeat" in str(failed.value)


def test_a_function_failing_on_later_runs_is_found(tmp_path):
    """The first run of each case is correct, so that only `repeat`, on its sample, finds the error."""
    wrapped, seen, patience = REGISTRY.get("relu", "quantized"), [], math.inf

    def tired(x, *, parameters):
        found = wrapped(x, parameters=parameters)
        again = any(x.shape == known.shape and bool((x == known).all()) for known in seen[-3:])
        seen.append(x.clone())
        return found - 1 if again and len(seen) > patience else found

    with REGISTRY.overridden("relu", "quantized", tired, None):
        runner(tmp_path, "relu-a8-ideal").rows()
        patience = 2 * len(seen) - len(seen) // 4
        made = runner(tmp_path, "relu-a8-ideal")
        with pytest.raises(pytest.fail.Exception):
            made.rows()
    assert made.record("failed").cases > 10


@pytest.mark.parametrize("name", ["dev", "nightly"])
def test_machine_load_fails_no_example(name, monkeypatch):
    """A minute goes by whenever Hypothesis looks at the clock."""
    clock = itertools.count(step=60)
    drawn = []

    @hypothesis.settings(PROFILES[name].settings(), max_examples=20, database=None)
    @hypothesis.given(strategies.integers())
    def test(number):
        drawn.append(number)

    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    test()
    assert len(drawn) == 20
