"""Square products, single rows by one shared matrix, and the single rows and columns of further operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.joint_sizes import COLUMN, joint_sizes
from quantizer.conformance.generation.case_classes.products import BATCH, PAST_BLOCK, products
from quantizer.conformance.generation.case_classes.usual_sizes import ROW, shortened
from quantizer.conformance.generation.case_classes.usual_windows import SPACED, spaced
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _cases(session, op, made):
    everything = list(session.all_targets(session.library.spec(op)))
    return [case for target in everything for case in made(everything, target)]


def test_one_product_is_square_past_a_block_and_one_has_single_rows(session) -> None:
    shapes = [(case.shapes["a"], case.shapes["b"]) for case in _cases(session, "matmul", products)]
    square = [a for a, b in shapes if a == b]
    assert len(square) == 1
    assert min(square[0]) >= PAST_BLOCK and square[0][0] == square[0][1] and square[0][0] % 8
    assert [(a[:-1], len(b)) for a, b in shapes if len(a) > len(b)] == [((*BATCH, 1), 2)]


@pytest.mark.parametrize("op", ["conv2d", "add", "softmax", "batch_norm"])
def test_operators_without_matrices_have_no_products(session, op) -> None:
    assert not _cases(session, op, products)


def test_a_column_gets_one_before_and_one_behind(session) -> None:
    ends = [case.attrs["padding"] for case in _cases(session, "pad", joint_sizes) if case.shapes["x"] == COLUMN]
    assert sorted(ends) == [(0, 0, 0, 0, 0, 0, 0, 1), (0, 0, 0, 1, 0, 0, 0, 0)]


@pytest.mark.parametrize("op", ["resize_nearest", "resize_bilinear"])
def test_a_row_becomes_shorter_in_each_mode(session, op) -> None:
    rows = [case for case in _cases(session, op, shortened) if case.shapes["x"][2:] == (1, ROW)]
    assert sorted(case.attrs["mode"] for case in rows) == sorted(session.library.spec(op).attrs["mode"].choices)
    assert {case.attrs["size"] for case in rows} == {(1, 12)}


def test_strides_stand_beside_dilations(session) -> None:
    cases = _cases(session, "depthwise_conv2d", spaced)
    found = [(case.attrs["stride"][0], case.attrs["dilation"][0]) for case in cases]
    assert sorted(found) == sorted((stride, dilation) for _, stride, _, _, dilation in SPACED)
