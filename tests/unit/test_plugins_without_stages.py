"""Correct forwards that show no stages pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Staged
from quantizer.ops import REGISTRY
from quantizer.ops.registry import Function

SESSION = open_session(Options(root=Path.cwd()))
OPERATORS = ("instance_norm", "group_norm", "rms_norm", "layer_norm", "log_softmax", "clip", "div", "resize_bilinear")
TARGETS = [
    target
    for op in OPERATORS
    for target in SESSION.all_targets(SESSION.library.spec(op))
    if target.platform.platform == "compass"
]


def _codes(forward: Function, more: int) -> Function:
    def quantized(*operands: Tensor, **named: Any) -> Tensor:
        result = forward(*operands, **named)
        codes, output = result.codes if isinstance(result, Staged) else result, named["parameters"].outputs["y"]
        return (codes + more).clamp(output.qmin, output.qmax)

    return quantized


def _judged(target: Target, more: int) -> list[Verdict]:
    op, platform = target.spec.op, target.platform.platform
    forward = REGISTRY.get(op, "quantized", platform)
    with REGISTRY.overridden(op, "quantized", _codes(forward, more), platform):
        trials = [Trial(target, example_case(target, e), SESSION.engine) for e in target.spec.examples]
        return [verdict for trial in trials for verdict in judge(trial, ("arithmetic", "accuracy"))]


@pytest.mark.parametrize("target", TARGETS, ids=[target.id for target in TARGETS])
def test_codes_without_stages_pass(target: Target) -> None:
    assert [verdict for verdict in _judged(target, 0) if verdict.failing] == []


@pytest.mark.parametrize("target", TARGETS, ids=[target.id for target in TARGETS])
def test_wrong_codes_without_stages_fail(target: Target) -> None:
    assert [verdict.check for verdict in _judged(target, 1) if verdict.failing and verdict.check == "arithmetic"]
