"""A failure of a plugin that raises says where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judge import judge
from quantizer.conformance.options import Options
from quantizer.conformance.session import open_session
from quantizer.conformance.trial import Trial
from quantizer.core.wording import shown_path
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
SPEC = SESSION.library.spec("floor")


def test_a_forward_that_raises_names_its_line():
    def quantized(x, *, parameters):
        return parameters.tables["nothing"].entries[x]

    target = SESSION.all_targets(SPEC)[0]
    trial = Trial(target, example_case(target, SPEC.examples[0]), SESSION.engine)
    with REGISTRY.overridden("floor", "quantized", quantized, target.platform.platform):
        reason = next(verdict.reason for verdict in judge(trial) if verdict.check == "arithmetic")
    place = f"{shown_path(Path(__file__))}:{quantized.__code__.co_firstlineno + 1}"
    assert reason == f"raised KeyError: 'nothing' ({place})"


@pytest.mark.parametrize("op", ["add", "conv2d", "softmax"])
@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_parameters_that_lack_a_tensor_fail_their_case_where_defects_are_weighed(op, kind):
    spec = SESSION.library.spec(op)
    for target in SESSION.all_targets(spec):
        platform = target.platform.platform
        rule = REGISTRY.get(op, "quantize", platform) if REGISTRY.find(op, "quantize", platform) else default_parameters

        def lacking(request, rule=rule):
            return replace(rule(request), **{kind: {}})

        with REGISTRY.overridden(op, "quantize", lacking, platform):
            verdicts = judge(Trial(target, example_case(target, spec.examples[0]), SESSION.engine))
        assert any(verdict.failing for verdict in verdicts if verdict.check == "parameters"), target.id
