"""Every platform has a case of each operator with an axis longer than 16 bits can count."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.past_counter import COUNTED, past_counter
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY

ROOT = Path(__file__).parents[2]
WITHOUT = {"group_norm", "instance_norm", "resize_bilinear", "slice"}
"""Operators whose sizes are bounded by an attribute, or whose long axis would be summed, on some platform."""


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _cases(session, op):
    targets = session.all_targets(session.library.spec(op))
    return [(target, case) for target in targets for case in past_counter(targets, target)]


def test_each_platform_has_one_case_of_each_operator(session) -> None:
    for op, spec in session.library.specs.items():
        found = _cases(session, op)
        platforms = {target.deal for target in session.all_targets(spec)}
        shared = Counter(target.deal for target, _ in found)
        assert set(shared.values()) <= {1}
        assert op in WITHOUT or set(shared) == platforms, op
        for target, case in found:
            trial = Trial(target, case, session.engine)
            assert math.prod(trial.output_shape) > COUNTED
            assert trial.terms <= 2 * COUNTED


@pytest.mark.parametrize("op", ["add", "conv2d", "gather", "matmul", "max_pool2d", "relu", "sigmoid"])
def test_an_offset_of_16_bits_is_found(session, op: str) -> None:
    """A kernel that computes its offset in 16 bits writes the elements past 65,536 over the first ones."""
    target, case = next((t, c) for t, c in _cases(session, op) if t.platform.platform == "ideal")
    right = REGISTRY.get(op, "quantized", target.platform.places)

    def wrapped(*args, **named):
        found = right(*args, **named)
        flat = found.reshape(-1).clone()
        flat[: flat.numel() - COUNTED] = flat[COUNTED:]
        flat[COUNTED:] = 0
        return flat.reshape(found.shape)

    assert not any(v.failing for v in judge(Trial(target, case, session.engine), ("arithmetic", "accuracy")))
    with REGISTRY.overridden(op, "quantized", wrapped, "ideal"):
        verdicts = judge(Trial(target, case, session.engine), ("arithmetic", "accuracy"))
    assert any(verdict.failing for verdict in verdicts)
