"""Cases of combined conditions: sizes next to blocks, sums at accumulator limits, ranges at both ends."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.conditions import GATE, conditions, every_condition
from quantizer.conformance.generation.case_classes.deep import OF_BLOCKS, ROWS, deep
from quantizer.conformance.generation.case_classes.long_windows import long_windows
from quantizer.conformance.generation.case_classes.scaled import FARTHEST, scaled
from quantizer.conformance.generation.case_classes.usual_sizes import DOUBLED, LONG, combinations, usual_sizes
from quantizer.conformance.generation.case_classes.usual_windows import images
from quantizer.conformance.generation.units import MOST_ELEMENTS, MOST_WORK, SIZES, Unit, units, with_rest
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import check, variables

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _targets(session, op: str, platform: str):
    everything = session.all_targets(session.library.spec(op))
    return everything, [target for target in everything if target.platform.platform == platform]


def test_sizes_lie_at_and_next_to_block_sizes() -> None:
    """v - 1, v, v + 1 and 2v + 1 of every block."""
    assert {1, 3, 4, 5, 9, 15, 16, 17, 33, 63, 64, 65, 129, 255, 256, 257, 513} <= set(SIZES)


def test_one_and_a_half_blocks_have_any_rest() -> None:
    """Past half a block of 32 or more, each of 16; past a block of 8 or 16, all but none. Other sizes stay."""
    found = {size: sorted({with_rest(Unit("n", size), n).value for n in range(64)}) for size in (12, 24, 48, 384)}
    assert found[12] == list(range(9, 16)) and found[24] == list(range(17, 32))
    assert found[48] == list(range(48, 64)) and found[384] == list(range(384, 400))
    assert all(with_rest(Unit("n", size), 5).value == size for size in SIZES if size not in (12, 24, 48, 96, 384))
    assert with_rest(Unit("n", 48, is_full=True), 5).value == 48


def test_a_number_of_axes_may_be_below_those_that_are_drawn(session) -> None:
    target = session.all_targets(session.library.spec("prelu"))[0]
    assert {unit.value for unit in units(target) if unit.name == "shape" and unit.place is None} == {1, 5, 6}


@pytest.mark.parametrize("op", ["conv3d", "depth_to_space", "gather", "slice", "add", "layer_norm", "split"])
def test_condition_cases_are_legal_small_and_deterministic(session, op: str) -> None:
    """No constraint is broken, no case is large, and another call gives the same cases."""
    everything, targets = _targets(session, op, "ideal")
    for target in targets:
        cases = list(conditions(everything, target))
        assert cases == list(conditions(everything, target))
        assert 0 < len(cases) <= GATE
        for case in cases:
            check(target.spec, variables(target.spec, case.shapes, case.attrs))
            assert sum(math.prod(shape) for shape in case.shapes.values()) <= MOST_ELEMENTS
            terms = target.spec.error_model.terms
            if terms is not None:
                assert int(terms(variables(target.spec, case.shapes, case.attrs))) <= MOST_WORK


def test_a_platform_has_cases_of_many_channels_groups_and_ranks(session) -> None:
    """The targets of a platform share the units, because one target alone has too few cases."""
    everything, targets = _targets(session, "conv2d", "ideal")
    cases = [case for target in targets for case in conditions(everything, target)]
    assert any(case.shapes["weight"][0] > 128 for case in cases)
    assert any(case.shapes["x"][1] > 256 for case in cases)
    assert {case.attrs["groups"] for case in cases} >= {1, 4}
    assert any(case.shapes["x"][1] > 256 and "bias" not in case.shapes for case in cases)
    everything, targets = _targets(session, "add", "ideal")
    assert any(len(case.shapes["a"]) > 4 for target in targets for case in conditions(everything, target))


def test_units_contain_sums_that_overflow_the_accumulator(session) -> None:
    """Products of 16-bit codes and 8-bit weights leave 32 bits after 512 terms of half the range."""
    spec = session.library.spec("fully_connected")
    target = next(t for t in session.all_targets(spec) if t.scheme.name == "w8a16")
    assert any(unit.is_full and unit.name == "c_in" and 500 < unit.value < 530 for unit in units(target))


def test_nightly_cases_combine_every_size_attribute_and_data_class(session) -> None:
    """Strength three: (channels, mode, data) of a pooling, over the targets of a platform."""
    everything, targets = _targets(session, "avg_pool2d", "ort")
    met = set()
    for target in targets:
        for case in every_condition(everything, target):
            if case.shapes["x"][1] == 33:
                met.add((case.data.set, case.attrs["ceil_mode"]))
    assert {(data, mode) for data in ("random", "corners", "ties") for mode in (False, True)} <= met


def test_builtin_functions_pass_the_condition_cases(session) -> None:
    """The built-in functions pass every check on the conditions of a platform with float32 multipliers."""
    everything, targets = _targets(session, "mul", "ort")
    for target in targets:
        for case in conditions(everything, target):
            assert not [verdict for verdict in judge(Trial(target, case, session.engine)) if verdict.failing]


def test_cases_of_plugin_operators_stay_within_the_spec_domain(session, monkeypatch) -> None:
    """A right function of others need not take more than its spec says: no size above a domain, no rank above its own."""
    monkeypatch.setattr("quantizer.conformance.generation.units.is_ours", lambda spec: False)
    for op, operand in (("avg_pool2d", "x"), ("add", "a")):
        everything, targets = _targets(session, op, "ideal")
        for target in targets:
            for case in conditions(everything, target):
                assert len(case.shapes[operand]) <= 4
                assert max(case.shapes[operand]) <= 8


def test_large_sizes_have_ranges_ending_or_starting_at_0(session) -> None:
    """The zero point is then the last code or the first, of the operand and of the output."""
    everything = session.all_targets(session.library.spec("conv2d"))
    cases = [case for target in everything for case in conditions(everything, target)]
    large = [case for case in cases if max(case.shapes["x"][1], case.shapes["weight"][0]) >= 64]
    for name in ("x", "y"):
        assert any(case.ranges[name][1] == 0.0 for case in large), name
        assert any(case.ranges[name][0] == 0.0 for case in large), name


def test_real_attributes_have_their_defaults_and_shapes_all_their_axes(session) -> None:
    """A clip at 0 and 6 is one that engines have a kernel for; a size of a single shape meets several axes."""
    everything = session.all_targets(session.library.spec("clip"))
    cases = [case for target in everything for case in conditions(everything, target)]
    assert any((case.attrs["low"], case.attrs["high"]) == (0.0, 6.0) for case in cases)
    assert any(len(case.shapes["x"]) >= 4 and max(case.shapes["x"]) >= 33 for case in cases)


@pytest.mark.parametrize("op", ["resize_nearest", "resize_bilinear"])
def test_resize_operators_have_cases_of_doubled_sizes(session, op: str) -> None:
    """Each target has two doubled sizes, another ratio per combination of modes, and a long axis."""
    spec = session.library.spec(op)
    for target in session.all_targets(session.library.spec(op)):
        cases = usual_sizes(target)
        doubled = [case for case in cases if case.attrs["size"] == tuple(2 * n for n in case.shapes["x"][2:])]
        modes = combinations(spec)
        assert len(cases) == DOUBLED + len(modes) + 1 and doubled == cases[:DOUBLED]
        assert [{name: case.attrs[name] for name in modes[0]} for case in cases[DOUBLED:-1]] == modes
        assert cases[-1].shapes["x"][3] in LONG and cases[-1].attrs["size"][1] != cases[-1].shapes["x"][3]
        for case in cases:
            check(target.spec, variables(target.spec, case.shapes, case.attrs))
    assert not usual_sizes(session.all_targets(session.library.spec("relu"))[0])


@pytest.mark.parametrize("op", ["conv2d", "conv1d", "max_pool2d"])
def test_window_cases_have_asymmetric_padding_on_either_side(session, op: str) -> None:
    """Padding before is less than after, or more, the same along all axes."""
    everything = session.all_targets(session.library.spec(op))
    found = {case.attrs["padding"] for target in everything for case in images(everything, target)}
    half = len(next(iter(found))) // 2
    assert any(p[0] < p[half] for p in found) and any(p[0] > p[half] for p in found)
    assert all(len({*p[:half]}) == len({*p[half:]}) == 1 for p in found)


def _spread(trial: Trial) -> int:
    """Return how many scales the channels of a weight have."""
    return len({float(scale) for scale in trial.parameters.constants["weight"].params.scale.reshape(-1)})


def test_long_sums_have_different_channel_scales(session) -> None:
    """Every target of a scheme per channel has a sum of 65 terms and more for one row, and for several."""
    spec = session.library.spec("fully_connected")
    for target in session.all_targets(spec):
        long = [case for case in deep(target) if case.shapes["x"][1] >= 65]
        scales = Trial(target, deep(target)[0], session.engine).parameters.constants["weight"].params
        if scales.axis is None or scales.blocks is not None:
            continue
        assert any(case.shapes["x"][0] == 1 for case in long) and any(case.shapes["x"][0] > 1 for case in long)
        assert all(_spread(Trial(target, case, session.engine)) > 1 for case in long), target.id


def test_block_schemes_have_sums_next_to_whole_blocks(session) -> None:
    """Blocks of 128 have sums of several blocks for one row; each target of blocks has more cases."""
    spec = session.library.spec("fully_connected")
    for target in session.all_targets(spec):
        block = target.scheme.weight.block
        if block is not None:
            cases = deep(target)
            assert len(cases) == OF_BLOCKS * len(ROWS)
            sizes = {case.shapes["x"][1] for case in cases} - {1}
            assert all(min(size % block, -size % block) <= 1 for size in sizes)
            assert any(case.shapes["x"][1] > block and case.shapes["x"][0] == 1 for case in cases)


def test_single_term_products_have_vector_sized_outputs(session) -> None:
    """Each target has a sum of one term; over all targets it has 8 to 64 outputs."""
    for op in ("fully_connected", "conv2d"):
        found = set()
        for target in session.all_targets(session.library.spec(op)):
            own = {case.shapes["weight"][0] for case in deep(target) if set(case.shapes["weight"][1:]) == {1}}
            assert own, target.id
            found |= own
        assert found >= {8, 16, 32, 64}


def test_sums_of_symmetric_codes_exceed_the_accumulator(session) -> None:
    """A unit of the terms that leave 32 bits leaves them with the codes that a symmetric scheme has."""
    spec = session.library.spec("fully_connected")
    target = next(t for t in session.all_targets(spec) if t.scheme.name == "w8a16")
    sizes = [unit.value for unit in units(target) if unit.is_full and unit.name == "c_in"]
    assert any((1 << 31) < size * 32767 * 127 < 1.01 * (1 << 31) for size in sizes)


def test_large_sizes_have_batches_and_multipliers_from_1_on(session) -> None:
    """More than 256 channels have a batch somewhere; long sums have multipliers from 1 on and outputs inside the codes."""
    everything = session.all_targets(session.library.spec("conv2d"))
    cases = [(target, case) for target in everything for case in conditions(everything, target)]
    assert any(case.shapes["x"][0] > 1 and case.shapes["x"][1] > 256 for _, case in cases)
    spec = session.library.spec("fully_connected")
    everything = session.all_targets(spec)
    for target in everything:
        for case in conditions(everything, target):
            if case.shapes["x"][1] < 32 or target.scheme.grid != "uniform" or case.data.set != "outliers":
                continue
            trial = Trial(target, case, session.engine)
            ratio, y = trial.parameters.rescale, trial.parameters.outputs["y"]
            large = (ratio.mantissa.double() * 2.0 ** -ratio.shift.double() / ratio.divisor).max() >= 1.0
            if large and bool(((trial.outcome.codes > y.qmin) & (trial.outcome.codes < y.qmax)).any()):
                return
    raise AssertionError("no long sum has a multiplier of 1 and more")


def test_near_tie_cases_include_equal_input_and_output_ranges(session) -> None:
    """With equal ranges, the multiplier is near 1, where a small error of it shows."""
    everything = session.all_targets(session.library.spec("conv2d"))
    cases = [case for target in everything for case in conditions(everything, target)]
    assert any(case.data.set == "near_ties" and case.ranges["x"] == case.ranges["y"] for case in cases)


@pytest.mark.parametrize("op", ["relu", "add", "conv2d"])
def test_scaled_cases_have_ranges_beyond_float32_integers(session, op: str) -> None:
    """A range of more than 2**30 occurs, and none beyond the limit of cases."""
    found = [scaled(target) for target in session.all_targets(session.library.spec(op))]
    largest = max(abs(end) for cases in found for case in cases for span in case.ranges.values() for end in span)
    assert 2.0**30 < largest <= FARTHEST


@pytest.mark.parametrize("platform", ["torch_fbgemm", "xnnpack"])
def test_float32_ratio_platforms_have_such_ranges_too(session, platform: str) -> None:
    """Only some platforms with float32 ratios have unsigned codes."""
    _, targets = _targets(session, "relu", platform)
    cases = [case for target in targets for case in scaled(target)]
    assert targets and any(abs(end) > 1e9 for case in cases for end in case.ranges["x"])


@pytest.mark.parametrize("op", ["conv1d", "conv2d", "depthwise_conv2d", "conv_transpose2d", "max_pool2d"])
def test_long_window_cases_have_padding_wider_than_a_block(session, op: str) -> None:
    """One row, a kernel past a block, and on one side or the other more than sixteen places of padding."""
    targets = session.all_targets(session.library.spec(op))
    cases = [case for target in targets for case in long_windows(target)]
    assert len(cases) == len(targets)
    wide = [[end > 16 for end in case.attrs["padding"]] for case in cases]
    axes = len(cases[0].attrs["padding"]) // 2
    assert any(ends[axes - 1] for ends in wide) and any(ends[-1] for ends in wide)
    assert all(set(case.shapes["x"][2:-1]) <= {1} for case in cases)
    for case in cases:
        check(targets[0].spec, variables(targets[0].spec, case.shapes, case.attrs))
