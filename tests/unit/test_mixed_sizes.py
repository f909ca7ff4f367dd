"""Several sizes of one case belong to classes of their own, whole vectors beside vectors with a rest among them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.mixed_sizes import (
    CLASSES,
    ENOUGH,
    HALF,
    LONG,
    NIGHTLY,
    SEVERAL,
    VECTOR,
    WINDOW,
    mixed_sizes,
    seeded_choices,
)
from quantizer.conformance.generation.stacks import seeded_case
from quantizer.conformance.generation.units import ROOM, is_cheap
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.core.shapes import variables

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _cases(session, op, *, strong=False):
    targets = list(session.all_targets(session.library.spec(op)))
    return [case for target in targets for case in mixed_sizes(targets, target, strong=strong)]


def _classes(size):
    return next((i for i, sizes in enumerate(CLASSES) if size in sizes), None)


@pytest.mark.parametrize("op", ["conv2d", "slice", "layer_norm", "prelu", "where", "matmul"])
def test_every_case_has_several_long_sizes(session, op):
    cases = _cases(session, op)
    assert len(cases) >= ENOUGH - ENOUGH // 2
    for case in cases:
        sizes = {size for shape in case.shapes.values() for size in shape if size >= LONG}
        assert sizes
        assert sum(size >= LONG for shape in case.shapes.values() for size in shape) >= SEVERAL


def test_convolution_cases_combine_most_channel_and_width_classes(session):
    shapes = [case.shapes["x"] for case in _cases(session, "conv2d")]
    met = {(_classes(shape[1]), _classes(shape[3])) for shape in shapes}
    assert len(met) >= len(CLASSES) ** 2 // 2


@pytest.mark.parametrize(
    ("op", "operand"), [("abs", "x"), ("transpose", "x"), ("matmul", "b"), ("fully_connected", "x")]
)
def test_innermost_sizes_leave_each_rest_of_half_a_vector(session, op, operand):
    """Of an operator with few targets as well."""
    sizes = {case.shapes[operand][-1] for case in _cases(session, op)}
    assert {size % HALF for size in sizes if size >= VECTOR} == set(range(HALF))


def test_kernels_are_small(session):
    for case in _cases(session, "conv2d"):
        assert set(case.shapes["weight"][2:]) <= set(WINDOW)


def test_half_of_the_cases_have_equal_strides(session):
    strides = [case.attrs["stride"] for case in _cases(session, "conv2d", strong=True)]
    assert sum(len(set(stride)) == 1 for stride in strides) > len(strides) // 2


def test_a_target_has_more_cases_in_nightly_runs(session):
    targets = list(session.all_targets(session.library.spec("concat")))
    assert len(mixed_sizes(targets, targets[0], strong=True)) == NIGHTLY


def test_cases_of_a_target_differ(session):
    targets = list(session.all_targets(session.library.spec("slice")))
    cases = mixed_sizes(targets, targets[0], strong=True)
    assert all(a.shapes != b.shapes or a.attrs != b.attrs for a, b in itertools.combinations(cases, 2))


@pytest.mark.parametrize("op", ["conv2d", "matmul", "pad", "gather"])
def test_hashed_examples_have_sizes_of_mixed_classes_and_are_cheap(session, op):
    targets = list(session.all_targets(session.library.spec(op)))[:8]
    cases = [seeded_case(target, index, alone=True) for target in targets for index in range(4)]
    sizes = [size for case in cases for shape in case.shapes.values() for size in shape]
    # sizes from domains stay small; a third of the classes lies past a vector
    assert sum(size >= LONG for size in sizes) >= len(sizes) // 8
    assert all(is_cheap(targets[0].spec, variables(targets[0].spec, c.shapes, c.attrs), ROOM) for c in cases)


def test_hashed_examples_are_the_same_every_time(session):
    target = session.all_targets(session.library.spec("conv2d"))[0]
    assert seeded_case(target, 1) == seeded_case(target, 1) != seeded_case(target, 2)
    assert seeded_choices(target, 1).integer("w", 1, 8) == seeded_choices(target, 1).integer("w", 1, 8)
