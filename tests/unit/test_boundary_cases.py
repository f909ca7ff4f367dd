"""Cases of zero points of 0 and at the ends, of products past every block, and of rows whose last element decides."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults import explicit_cases
from quantizer.conformance.generation.case_classes.last_of_row import VECTOR, decides, last_of_row, row_of
from quantizer.conformance.generation.case_classes.past_blocks import DEPTH, OUTPUTS, ROWS, past_blocks
from quantizer.conformance.generation.case_classes.zero_points import BLOCK, zero_points
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.real.facts import facts
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import infer_shapes
from quantizer.runtime.engines.builtin import BuiltinEngine

ROOT = Path(__file__).parents[2]
MATRICES, IMAGES = ("fully_connected",), ("conv1d", "conv3d", "conv_transpose2d", "depthwise_conv2d")


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _targets(session, op):
    return session.all_targets(session.library.spec(op))


def _zeros(session, op):
    """Return by platform the numbers of its cases, as the rule of the platform gives them."""
    everything = _targets(session, op)
    found: dict[str, list] = {}
    for target in everything:
        for case in zero_points(everything, target):
            parameters = Trial(target, case, session.engine).parameters
            known = facts(target.spec, case.shapes, case.attrs, parameters, case.ranges)
            assert known["elements"] > BLOCK and math.prod(case.shapes[next(iter(case.shapes))]) > BLOCK
            found.setdefault(target.platform.platform, []).append(known)
    return found


def _is_end(known, zero: str, first: str, last: str) -> bool:
    """Compass's zero points of products keep one code away from the ends."""
    return min(abs(known[zero] - known[first]), abs(known[zero] - known[last])) <= 1


@pytest.mark.parametrize("op", ["fully_connected", "matmul", "conv2d", "add", "mul"])
def test_every_platform_has_middle_and_end_zero_points(session, op: str) -> None:
    """Operand and output both have the middle zero point (0 if signed) in one case, and both an end in another."""
    found = _zeros(session, op)
    assert found.keys() == {target.platform.platform for target in _targets(session, op)}
    for known in found.values():
        middles = [0 if each["y_first"] < 0 else (each["y_last"] + 1) // 2 for each in known]
        assert any(each["zero"] == each["y_zero"] == middle for each, middle in zip(known, middles, strict=True))
        assert any(
            _is_end(each, "zero", "first", "last") and _is_end(each, "y_zero", "y_first", "y_last") for each in known
        )


@pytest.mark.parametrize("op", ["reshape", "concat", "max_pool2d"])
def test_movement_operators_have_equal_and_zero_zero_points(session, op: str) -> None:
    for known in (found := _zeros(session, op)).values():
        assert any(each["zero"] == each["y_zero"] for each in known)
    assert any(each["y_zero"] == 0 > each["first"] for known in found.values() for each in known)


def test_output_zero_points_include_both_ends(session) -> None:
    known = [each for op in ("add", "conv2d") for found in _zeros(session, op).values() for each in found]
    assert any(each["y_zero"] == each["y_first"] for each in known)
    assert any(each["y_zero"] == each["y_last"] for each in known)


@pytest.mark.parametrize("op", [*MATRICES, *IMAGES])
def test_every_target_has_a_product_larger_than_all_blocks(session, op: str) -> None:
    for target in _targets(session, op):
        (case,) = past_blocks(target)
        x, weight = case.shapes["x"], case.shapes["weight"]
        out = infer_shapes(target.spec, case.shapes, case.attrs)["y"]
        assert "bias" not in case.shapes
        if op in MATRICES:
            assert x[0] > ROWS and x[1] > DEPTH and weight[0] > OUTPUTS
        else:
            assert x[1] > DEPTH and set(weight[2:]) == {3} and math.prod(out[2:]) > 1


def test_an_example_larger_than_all_blocks_replaces_the_case(session) -> None:
    """Each target of the operator runs its examples, so that the condition is also met there."""
    for op, sizes in (("matmul", lambda s: s["a"][-2] > ROWS and s["a"][-1] > DEPTH and s["b"][-1] > OUTPUTS),):
        spec, met = session.library.spec(op), set()
        for target, case in explicit_cases(session, spec):
            met |= {target.id} if sizes(case.shapes) else set()
        assert met == {target.id for target in _targets(session, op)}
        assert not any(past_blocks(target) for target in _targets(session, op))


@pytest.mark.parametrize(
    "op", ["argmax", "argmin", "max_pool2d", "global_max_pool2d", "reduce_max", "reduce_min", "softmax", "log_softmax"]
)
def test_the_last_element_of_a_long_row_decides(session, op: str) -> None:
    """A function that leaves it out is wrong on the data of the case."""
    for target in _targets(session, op):
        (case,) = last_of_row(target)
        assert row_of(target, case) > VECTOR
        ((name, values),) = materialise(target, case).items()
        without = values.double().clone()
        without.view(-1)[-1] *= -1.0  # below the zeros, or above: an index of the last zero would be the same
        whole = target.reference({name: values.double()}, case)
        assert not torch.equal(whole, target.reference({name: without}, case))


def test_misreading_the_last_maximum_changes_the_softmax(session) -> None:
    """A kernel that reads the maximum of the rest of a row one code too low is wrong on the data of the case."""
    for target in _targets(session, "softmax"):
        (case,) = last_of_row(target)
        trial = Trial(target, case, BuiltinEngine())
        lower = {"x": trial.values["x"].double().clone()}
        lower["x"].view(-1)[-1] -= float(trial.parameters.inputs["x"].scale)
        moved = (target.reference(lower, case) - torch.from_numpy(trial.y_hat)).abs().max()
        assert moved > 0.9 * float(trial.output.scale)
        assert trial.values["x"].argmax() == trial.values["x"].numel() - 1


@pytest.mark.parametrize("op", ["reshape", "slice", "avg_pool2d", "reduce_mean", "gather"])
def test_only_selecting_operators_have_last_of_row_cases(session, op: str) -> None:
    assert not any(last_of_row(target) for target in _targets(session, op))


def test_only_a_larger_last_element_decides_a_maximum(session) -> None:
    target = _targets(session, "reduce_max")[0]
    (case,) = last_of_row(target)
    assert decides(target, case, 1.0)
    assert not decides(target, case, -1.0)
