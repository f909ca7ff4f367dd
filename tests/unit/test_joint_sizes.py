"""Two sizes that meet in one loop are both past a block in some case of each platform."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.first_broadcast import FEWER, fewer_axes, mutual_broadcast
from quantizer.conformance.generation.case_classes.joint_sizes import (
    AXES,
    BETWEEN_ONES,
    BLOCKS,
    CHANNELS,
    GROUPS,
    IMAGES,
    JOINED,
    PADDED,
    PAST_COUNTERS,
    SUMMED_UP,
    joint_sizes,
    works_along,
)
from quantizer.conformance.generation.case_classes.long_sizes import long_sizes
from quantizer.conformance.generation.case_classes.past_blocks import one_rest
from quantizer.conformance.generation.case_classes.scaled import far_below, tiny
from quantizer.conformance.generation.case_classes.uneven_windows import uneven_windows
from quantizer.conformance.generation.case_classes.usual_sizes import tripled
from quantizer.conformance.generation.case_classes.usual_windows import (
    CEILED,
    PATCHES,
    VECTORS,
    ceiled,
    first_layer,
    patches,
)
from quantizer.conformance.generation.dealing import dealt
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.core.errors import UnsupportedError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _of(session, op, made):
    """Return the cases of an operator for each platform."""
    targets, found = session.all_targets(session.library.spec(op)), defaultdict(list)
    for target in targets:
        found[target.platform.platform] += made(targets, target)
    return found


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "argmax", "reduce_mean", "transpose", "concat"])
def test_an_operator_works_along_each_of_two_long_axes(session, op: str) -> None:
    """Every platform has a case for the earlier and for the later axis."""
    spec = session.library.spec(op)
    shape = next(iter(spec.dims))
    for platform, cases in _of(session, op, joint_sizes).items():
        bounds = [{shape: next(iter(case.shapes.values())), **case.attrs} for case in cases]
        two = [bound for bound in bounds if min(bound[shape][-2:]) > 8]
        assert {works_along(spec, shape, bound) for bound in two} >= set(AXES), platform
        assert any(max(bound[shape]) == PAST_COUNTERS for bound in bounds)


def _cases(session, op):
    return [case for of in _of(session, op, joint_sizes).values() for case in of]


def test_pad_cases_have_padding_at_one_end_of_one_axis(session) -> None:
    cases = [case for case in _cases(session, "pad") if min(case.shapes["x"][-2:]) > 8]
    assert {sum(v > 0 for v in case.attrs["padding"]) for case in cases} == {1}


def test_a_factor_of_each_channel_is_broadcast(session) -> None:
    """Its last two axes have one place, and the channels several."""
    for cases in _of(session, "mul", joint_sizes).values():
        assert any(case.shapes["b"][-2:] == (1, 1) and case.shapes["b"][-3:-2] > (1,) for case in cases)


def test_transpose_cases_include_permutations_of_unit_axes(session) -> None:
    for cases in _of(session, "transpose", joint_sizes).values():
        assert any(c.shapes["x"].count(1) == 2 and c.attrs["perm"] in ((0, 2, 3, 1), (0, 3, 1, 2)) for c in cases)


@pytest.mark.parametrize("op", ["conv1d", "conv2d", "conv_transpose2d"])
def test_grouped_convolutions_exceed_a_block(session, op: str) -> None:
    for cases in _of(session, op, joint_sizes).values():
        assert len(cases) == len(GROUPS) + len(CHANNELS)
        past = [case for case in cases if case.attrs["groups"] > 1 and min(case.shapes["weight"][:2]) >= 4]
        assert len(past) >= len(GROUPS)


def test_an_operator_without_axes_has_no_joint_sizes(session) -> None:
    assert not any(_of(session, "relu", joint_sizes).values())


@pytest.mark.parametrize("op", ["conv2d", "max_pool2d"])
def test_patch_cases_cover_all_patch_strides(session, op: str) -> None:
    for cases in _of(session, op, patches).values():
        assert {case.attrs["stride"][0] for case in cases} == {stride for _, stride, *_ in PATCHES}


def test_each_kind_is_assigned_to_one_target_per_platform(session) -> None:
    targets = session.all_targets(session.library.spec("softmax"))
    for deal in {target.deal for target in targets}:
        kinds = [kind for t in targets if t.deal == deal for kind in dealt(targets, t, ("a", "b", "c"), "x")]
        assert sorted(kinds) == ["a", "b", "c"]


def test_a_target_outside_the_list_is_named(session) -> None:
    target = session.all_targets(session.library.spec("relu"))[0]
    with pytest.raises(UnsupportedError, match=f"{target.id}: must be one of the targets that share the cases 'x'"):
        dealt([], target, ("a",), "x")


@pytest.mark.parametrize("op", ["conv1d", "conv2d", "conv3d"])
def test_grouped_convolutions_have_vector_sized_outputs(session, op: str) -> None:
    for cases in _of(session, op, joint_sizes).values():
        found = {(case.shapes["weight"][1], case.shapes["weight"][0], case.attrs["groups"]) for case in cases}
        assert {(2, 16, 2), (32, 32, 1)} <= found


def test_fully_connected_cases_include_vector_sized_channels(session) -> None:
    for cases in _of(session, "fully_connected", joint_sizes).values():
        assert (32, 32) in {case.shapes["weight"] for case in cases}


def test_concat_cases_have_equal_vector_sized_operands(session) -> None:
    for cases in _of(session, "concat", joint_sizes).values():
        alike = [case for case in cases if len(set(case.shapes.values())) == 1 and case.attrs["axis"] == 1]
        assert {len(case.shapes) for case in alike if case.shapes["a"][1] in JOINED} == {2, 4}


def test_cumsum_cases_are_longer_than_8192(session) -> None:
    assert any(max(case.shapes["x"]) == PAST_COUNTERS for case in _cases(session, "cumsum"))


def test_each_operand_is_repeated_along_an_axis_of_the_other(session) -> None:
    for op in ("add", "matmul"):
        for cases in _of(session, op, mutual_broadcast).values():
            found = {tuple(_repeated(case.shapes[name][:4]) for name in "ab") for case in cases}
            assert {(a[:2], b[:2]) for a, b in found} >= {(".1", "1."), ("..", ".1"), ("11", "..")}
            assert ("..11", ".1..") in found


def _repeated(shape):
    """Return the axes as text, 1 for those of one place, which are repeated."""
    return "".join("1" if size == 1 else "." for size in shape)


@pytest.mark.parametrize("op", ["mul", "where"])
def test_an_operand_has_fewer_axes(session, op: str) -> None:
    """Its axes alternate in every way between repeated ones and others."""
    targets = session.all_targets(session.library.spec(op))
    found = {
        tuple(_repeated(shape) for shape in sorted(set(case.shapes.values()), key=len))
        for target in targets
        for case in fewer_axes(targets, target)
    }
    assert found == {(_repeated(second), _repeated(first)) for first, second in FEWER}


@pytest.mark.parametrize(("op", "most"), [("add", 7), ("div", 7), ("matmul", 7)])
def test_operands_of_many_axes_are_repeated(session, op: str, most: int) -> None:
    for cases in _of(session, op, mutual_broadcast).values():
        ranks = {max(len(shape) for shape in case.shapes.values()) for case in cases}
        assert max(ranks) == most
        assert {5, 6} <= ranks or op == "matmul"


@pytest.mark.parametrize("op", ["softmax", "argmax", "reduce_sum"])
def test_reduction_axes_have_whole_blocks_of_the_largest_size(session, op: str) -> None:
    """The operator works along it."""
    spec = session.library.spec(op)
    for cases in _of(session, op, joint_sizes).values():
        found = {case.shapes["x"]: case for case in cases if case.shapes["x"] in BLOCKS.values()}
        assert set(found) == set(BLOCKS.values())
        assert {works_along(spec, "shape", {"shape": s, **case.attrs}) for s, case in found.items()} == {"later"}


def test_first_layer_cases_have_three_channels_and_vector_sized_filters(session) -> None:
    for cases in _of(session, "conv2d", first_layer).values():
        assert sorted(case.shapes["x"][1] for case in cases) == [1, 3]
        for case in cases:
            many, channels = case.shapes["x"][:2]
            assert case.shapes["weight"][1:] == (channels, 3, 3) and case.shapes["weight"][0] in VECTORS
            assert case.attrs["stride"] == (2, 2) and (many == 1 or channels > 1)
    assert not any(_of(session, "max_pool2d", first_layer).values())


def test_functions_have_cases_of_tiny_values(session) -> None:
    for cases in _of(session, "gelu", tiny).values():
        assert [max(map(abs, case.ranges["x"])) < 1e-6 for case in cases] == [True]
    assert not any(_of(session, "conv2d", tiny).values())


@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
def test_windows_that_round_up_fit_or_leave_a_rest(session, op: str) -> None:
    for cases in _of(session, op, ceiled).values():
        assert len(cases) == len(CEILED)
        assert {case.attrs["ceil_mode"] for case in cases} == {True}
        sizes = {case.shapes["x"][2:] for case in cases if case.attrs["kernel"] == (3, 3)}
        assert sizes >= {(3, 5), (6, 6)}


@pytest.mark.parametrize("op", ["resize_nearest", "resize_bilinear"])
def test_each_resize_mode_has_a_case_of_tripled_sizes(session, op: str) -> None:
    spec = session.library.spec(op)
    for cases in _of(session, op, tripled).values():
        assert {case.attrs["mode"] for case in cases} == set(spec.attrs["mode"].choices)
        assert all(case.attrs["size"] == tuple(3 * size for size in case.shapes["x"][2:]) for case in cases)


@pytest.mark.parametrize("op", ["softmax", "reduce_mean", "reduce_max", "argmax", "split"])
def test_an_operator_works_along_many_channels_of_images(session, op: str) -> None:
    for cases in _of(session, op, joint_sizes).values():
        assert any(case.shapes["x"] in IMAGES for case in cases)


def test_running_sums_of_a_vector_have_every_combination_of_flags(session) -> None:
    for cases in _of(session, "cumsum", joint_sizes).values():
        found = {(c.attrs["exclusive"], c.attrs["reverse"]) for c in cases if c.shapes["x"] == (SUMMED_UP,)}
        assert len(found) == 4


def test_pad_cases_cover_each_side_in_both_layouts(session) -> None:
    for cases in _of(session, "pad", joint_sizes).values():
        found = {case.attrs["padding"] for case in cases if case.shapes["x"] in PADDED}
        assert {(0, 0, 0, 0, 0, 1, 1, 0), (0, 0, 0, 0, 0, 0, 1, 1), (0, 0, 1, 1, 0, 0, 1, 1)} <= found
        assert len(found) == 6


@pytest.mark.parametrize("op", ["matmul", "fully_connected"])
def test_products_combine_whole_blocks_with_a_remainder(session, op: str) -> None:
    for cases in _of(session, op, one_rest).values():
        sizes = [
            (*case.shapes[first][-2:], *case.shapes[second])
            for case in cases
            for first, second in [tuple(case.shapes)[:2]]
        ]
        assert cases and len(cases) % 3 == 0
        assert all(any(size % 8 for size in each) and any(size % 16 == 0 for size in each) for each in sizes)


def test_each_matmul_dimension_exceeds_500_once(session) -> None:
    cases = [case for of in _of(session, "matmul", long_sizes).values() for case in of]
    assert [max(max(shape) for shape in case.shapes.values()) for case in cases] == [513] * 3


def test_softmax_has_a_range_far_below_0(session) -> None:
    for cases in _of(session, "softmax", far_below).values():
        assert [case.ranges["x"] for case in cases] == [(-256.0, 0.0)]
    assert not any(_of(session, "relu", far_below).values())


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "avg_pool2d"])
def test_windows_of_one_axis_and_padding_behind(session, op: str) -> None:
    for cases in _of(session, op, uneven_windows).values():
        kernels = [case.attrs.get("kernel") or case.shapes["weight"][-2:] for case in cases]
        assert {frozenset(kernel) for kernel in kernels} >= {frozenset((1, 3)), frozenset((1, 7)), frozenset((7,))}
        assert any(case.attrs["padding"] == (0, 0, 1, 1) for case in cases)
        assert any(case.shapes["x"][2] == 1 and case.shapes["x"][1] == 32 for case in cases)
        assert "dilation" not in cases[0].attrs or any(case.attrs["dilation"] == (4, 4) for case in cases)


def test_reduction_cases_have_unit_axes_around_the_reduced_one(session) -> None:
    for cases in _of(session, "reduce_sum", joint_sizes).values():
        found = [case.attrs for case in cases if case.shapes["x"] == BETWEEN_ONES]
        assert [(attrs["axes"], attrs["keepdims"]) for attrs in found] == [((3,), False)]
