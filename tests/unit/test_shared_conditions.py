"""Pairs of tables, operands of unlike numbers of axes, repeated numbers, signals, windows, tiles and axes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.many_tiles import FILTERS, TILES, WINDOWS, many_tiles
from quantizer.conformance.generation.case_classes.matrices import FEW, TILE, WIDE, matrices
from quantizer.conformance.generation.case_classes.products import BLOCKS, products
from quantizer.conformance.generation.case_classes.signals import SIGNALS, signals
from quantizer.conformance.generation.case_classes.simple_moves import (
    FALLING,
    PLANES,
    TIMES,
    exchanged,
    falling_axes,
    repeated_number,
)
from quantizer.conformance.generation.case_classes.tables import UNLIKE, tables, unlike_axes
from quantizer.conformance.generation.case_classes.usual_windows import SPACED
from quantizer.conformance.generation.case_classes.window_channels import (
    DEEP,
    SIDES,
    VECTORS,
    deep_windows,
    spaced_vectors,
)
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _cases(session, op, made):
    everything = list(session.all_targets(session.library.spec(op)))
    return [case for target in everything for case in made(everything, target)]


@pytest.mark.parametrize("op", ["add", "mul", "greater"])
def test_each_operand_has_one_place_or_all_along_each_of_two_axes(session, op) -> None:
    shapes = [(case.shapes["a"], case.shapes["b"]) for case in _cases(session, op, tables)]
    found = {tuple(size > 1 for size in (*a, *b)) for a, b in shapes}
    assert found == {each for each in itertools.product((False, True), repeat=4) if each[:2] != each[2:]}
    assert len(shapes) == len(found)


def test_three_operands_have_unlike_axes_in_each_order(session) -> None:
    found = [tuple(case.shapes.values()) for case in _cases(session, "where", unlike_axes)]
    assert sorted(found) == sorted(itertools.permutations(UNLIKE))
    assert not _cases(session, "add", unlike_axes)


def test_one_number_is_repeated_along_each_axis(session) -> None:
    found = [case.attrs["repeats"] for case in _cases(session, "replicate", repeated_number)]
    assert sorted(found) == sorted(tuple(TIMES if i == axis else 1 for i in range(4)) for axis in range(4))
    assert not any(_cases(session, op, repeated_number) for op in ("slice", "pad", "reshape", "concat"))


def test_rows_and_columns_past_a_block_are_exchanged(session) -> None:
    assert sorted(case.shapes["x"] for case in _cases(session, "transpose", exchanged)) == sorted(PLANES)


def test_a_signal_has_more_places_than_channels(session) -> None:
    found = [(*case.shapes["x"], case.attrs["num_groups"]) for case in _cases(session, "group_norm", signals)]
    assert sorted(found) == sorted((1, channels, 1, places, groups) for channels, places, groups in SIGNALS)
    # without groups, kinds that differ in them alone are one
    assert len(_cases(session, "instance_norm", signals)) == len({kind[:2] for kind in SIGNALS})
    assert not _cases(session, "max_pool2d", signals)


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "conv_transpose2d", "max_pool2d"])
def test_many_channels_have_an_odd_and_an_even_side(session, op) -> None:
    found = [case.shapes["x"] for case in _cases(session, op, deep_windows)]
    assert sorted(found) == sorted((1, channels, *sides) for channels in DEEP for sides in SIDES)


def test_spaced_windows_have_whole_vectors_of_channels(session) -> None:
    cases = _cases(session, "depthwise_conv2d", spaced_vectors)
    found = [
        (case.attrs["stride"][0], case.attrs["dilation"][0], case.shapes["x"][1], case.shapes["weight"][0])
        for case in cases
    ]
    kinds = itertools.product(SPACED, VECTORS)
    assert sorted(found) == sorted((stride, space, many, many) for (_, stride, _, _, space), many in kinds)
    assert not _cases(session, "max_pool2d", spaced_vectors)


@pytest.mark.parametrize(("op", "operand"), [("matmul", "a"), ("fully_connected", "x")])
def test_sums_have_several_whole_blocks(session, op, operand) -> None:
    shapes = [case.shapes[operand] for case in _cases(session, op, products)]
    found = {shape[0]: shape[1] // shape[0] for shape in shapes if shape[-1] % shape[0] == 0 and shape[1] > shape[0]}
    assert set(BLOCKS.values()) <= found.keys() and min(found.values()) > 1


def test_images_have_many_tiles_and_filters(session) -> None:
    found = _cases(session, "conv2d", many_tiles)
    assert len(found) == len(WINDOWS) * len((*TILES, *FILTERS))
    rests = {-(-h // 4) * -(-w // 4) % 8 for h, w in (_places(case) for case in found)}
    # the loop for more than half a block, and the one for a single tile
    assert rests >= {1, 5}
    assert {channels.outputs for _, channels in FILTERS} <= {case.shapes["weight"][0] for case in found}
    assert not any(_cases(session, op, many_tiles) for op in ("conv1d", "conv3d", "depthwise_conv2d", "max_pool2d"))


def _places(case):
    """Return the places of a result with a window of three at steps of one."""
    top, left, bottom, right = case.attrs["padding"]
    return case.shapes["x"][2] + top + bottom - 2, case.shapes["x"][3] + left + right - 2


def test_few_rows_meet_one_tile_of_terms_and_whole_tiles_of_columns(session) -> None:
    kinds = {(*case.shapes["x"], case.shapes["weight"][0]) for case in _cases(session, "fully_connected", matrices)}
    assert set(itertools.product(FEW, TILE, WIDE)) <= kinds


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max", "reduce_l2"])
def test_axes_fall(session, op) -> None:
    found = [(case.shapes["x"], case.attrs["axes"]) for case in _cases(session, op, falling_axes)]
    assert sorted(found) == sorted(FALLING.items())
    assert not _cases(session, "transpose", falling_axes)
