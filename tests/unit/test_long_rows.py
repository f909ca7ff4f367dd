"""The axis that an operator works along is long at each place; windows follow strides, and groups have vectors."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.first_broadcast import mutual_broadcast
from quantizer.conformance.generation.case_classes.long_rows import KINDS, long_rows
from quantizer.conformance.generation.case_classes.past_counter import (
    COUNTED,
    past_counter_of_outputs,
    past_counter_of_sums,
)
from quantizer.conformance.generation.case_classes.uneven_windows import uneven_windows
from quantizer.conformance.generation.case_classes.usual_windows import (
    FULL,
    GROUPED,
    GROUPS,
    OUTPUTS,
    OVERLAPS,
    PATCHES,
    SAME,
    STEPS,
    WINDOWS,
    fully_padded,
    grouped_windows,
    overlapping,
    same_padding,
)
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.core.shapes import infer_shapes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _targets(session, op):
    return list(session.all_targets(session.library.spec(op)))


def _cases(session, op, made):
    targets = _targets(session, op)
    return [case for target in targets for case in made(targets, target)]


@pytest.mark.parametrize(("op", "attr"), [("argmax", "axis"), ("gather", "axis"), ("log_softmax", "axis")])
def test_each_operator_has_each_kind_of_long_row_once(session, op, attr):
    found = [(case.shapes["x"], case.attrs[attr]) for case in _cases(session, op, long_rows)]
    assert sorted(found) == sorted((kind.shape, kind.axis) for kind in KINDS)


@pytest.mark.parametrize(("op", "flags"), [("avg_pool2d", 4), ("max_pool2d", 2), ("conv2d", 1)])
def test_odd_padding_keeps_an_image_divided_by_the_stride(session, op, flags):
    """Each window meets every combination of flags; where sizes are rounded up, some begin a window more."""
    cases, found = _cases(session, op, same_padding), {}
    assert len(cases) == len(SAME) * flags
    for case in cases:
        (before,), (behind,) = (set(half) for half in (case.attrs["padding"][:2], case.attrs["padding"][2:]))
        assert behind == before + 1
        out = infer_shapes(session.library.spec(op), case.shapes, case.attrs)["y"]
        found.setdefault(case.attrs.get("ceil_mode", False), set()).update(out[2:])
    assert found.pop(False) == {3} and found in ({}, {True: {3, 4}})


def test_signals_are_images_of_one_row_under_kernels_of_one_step_or_two(session):
    found = [case for case in _cases(session, "conv_transpose2d", uneven_windows) if case.shapes["x"][2] == 1]
    ratios = {case.shapes["weight"][3] / case.attrs["stride"][1] for case in found if case.attrs["stride"][1] > 1}
    assert ratios == {1, 2}
    assert any(case.shapes["x"][1] == case.shapes["weight"][0] == 1 for case in found)


def test_rows_of_norms_have_a_mean_beside_0(session):
    """Zeros behind a row would not change a mean of 0."""
    found = _cases(session, "layer_norm", long_rows)
    assert found and all(case.ranges["x"][0] == 0 for case in found)


def test_axes_of_a_list_count_from_the_front(session):
    found = {(case.shapes["x"], case.attrs["axes"]) for case in _cases(session, "reduce_max", long_rows)}
    assert found == {(kind.shape, (kind.axis % len(kind.shape),)) for kind in KINDS}


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_prod", "reduce_mean"])
def test_sums_stay_within_an_accumulator_and_products_within_a_format(session, op):
    most = {"reduce_sum": 513, "reduce_prod": 1, "reduce_mean": 4097}[op]
    for case in _cases(session, op, long_rows):
        assert math.prod(case.shapes["x"][axis] for axis in case.attrs["axes"]) <= most


@pytest.mark.parametrize("op", ["transpose", "concat", "add", "slice"])
def test_operators_without_a_working_axis_have_no_long_rows(session, op):
    assert not _cases(session, op, long_rows)


def test_windows_leave_gaps_touch_and_overlap_for_each_stride():
    known = {window[:2] for window in (*WINDOWS, *PATCHES, *OVERLAPS)}
    for stride in STEPS:
        assert {(kernel, stride) for kernel in (stride - 1, stride, stride + 1, 2 * stride - 1, 2 * stride)} <= known
        assert (2 * stride + 1, stride) in known
    assert {(kernel, 1) for kernel in range(2, 8)} <= known
    assert not {window[:2] for window in OVERLAPS} & {window[:2] for window in WINDOWS + PATCHES}


@pytest.mark.parametrize("op", ["conv2d", "max_pool2d", "conv1d"])
def test_an_operator_has_each_overlap_once(session, op):
    cases = _cases(session, op, overlapping)
    assert len(cases) == len(OVERLAPS)
    assert {case.attrs["stride"][0] for case in cases} == {window[1] for window in OVERLAPS}


def test_groups_of_vectors_have_usual_windows_on_each_platform(session):
    targets = _targets(session, "conv_transpose2d")
    cases = [case for target in targets for case in grouped_windows(targets, target)]
    assert len(cases) == len(GROUPED) * len({target.deal for target in targets})
    assert {case.attrs["groups"] for case in cases} == {GROUPS}
    assert {case.shapes["x"][1] for case in cases} == {GROUPS * size for _, size in GROUPED}
    assert not _cases(session, "max_pool2d", grouped_windows)


def test_filters_of_a_group_are_few(session):
    for case in _cases(session, "conv2d", grouped_windows):
        assert case.shapes["weight"][0] == GROUPS * OUTPUTS


@pytest.mark.parametrize("op", ["avg_pool2d", "max_pool2d"])
def test_fully_padded_windows_start_with_one_element(session, op):
    cases = _cases(session, op, fully_padded)
    assert len(cases) == len(FULL)
    for case in cases:
        (kernel, _), (stride, _), padding = case.attrs["kernel"], case.attrs["stride"], case.attrs["padding"]
        assert set(padding) == {kernel - 1}
        assert case.shapes["x"][2] + 2 * padding[0] == kernel + 2 * stride


@pytest.mark.parametrize("op", ["global_avg_pool2d", "reduce_mean"])
def test_one_8_bit_mean_has_terms_beyond_16_bits(session, op):
    targets = _targets(session, op)
    found = [(target, case) for target in targets for case in past_counter_of_sums(targets, target)]
    ((target, case),) = found
    assert target.scheme.activation.bits <= 8
    assert math.prod(case.shapes["x"]) > COUNTED


def test_each_operand_of_where_is_broadcast_alone(session):
    cases = _cases(session, "where", mutual_broadcast)
    assert any(case.shapes["condition"] == () != case.shapes["b"] for case in cases)
    assert any(case.shapes["b"] == () != case.shapes["condition"] for case in cases)


@pytest.mark.parametrize("op", ["conv2d", "fully_connected", "depthwise_conv2d"])
def test_one_case_has_outputs_beyond_a_16_bit_index(session, op):
    (case,) = _cases(session, op, past_counter_of_outputs)
    assert case.shapes["weight"][0] > COUNTED
    if op == "depthwise_conv2d":
        assert case.shapes["x"][1] == case.shapes["weight"][0]


def test_kinds_are_assigned_once_to_known_targets(session):
    targets = _targets(session, "add")
    assert sorted(k for target in targets for k in spread(targets, target, [1, 2, 3], "name")) == [1, 2, 3]
    assert spread(targets[1:], targets[0], [1, 2, 3], "name") == []
