"""A failure of a plugin that raises says where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
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


def judged(target, change):
    """Return the verdicts of an example under the built-in rule's parameters, changed."""
    op, platform = target.spec.op, target.platform.platform
    rule = REGISTRY.get(op, "quantize", platform) if REGISTRY.find(op, "quantize", platform) else default_parameters
    with REGISTRY.overridden(op, "quantize", lambda request: change(rule(request)), platform):
        return judge(Trial(target, example_case(target, target.spec.examples[0]), SESSION.engine))


@pytest.mark.parametrize(("kind", "name"), [("inputs", "x"), ("outputs", "y"), ("constants", "weight, bias")])
def test_a_rule_missing_a_tensor_fails_parameters(kind, name):
    for target in SESSION.all_targets(SESSION.library.spec("conv2d")):
        found = judged(target, lambda parameters: replace(parameters, **{kind: {}}))
        assert [verdict.check for verdict in found] == ["parameters"]
        assert f"provided nothing for {name}." in found[0].reason


@pytest.mark.parametrize("op", ["add", "conv2d", "softmax"])
def test_an_exception_during_defect_evaluation_fails_the_case(op):
    def of_seven_channels(parameters):
        first = parameters.outputs["y"]
        wide = replace(first, scale=first.scale.repeat(7), zero_point=first.zero_point.repeat(7))
        return replace(parameters, outputs={"y": wide})

    for target in SESSION.all_targets(SESSION.library.spec(op)):
        found = judged(target, of_seven_channels)
        assert any(verdict.failing for verdict in found if verdict.check == "parameters"), target.id


@pytest.mark.parametrize("kind", ["quantize", "quantized"])
def test_a_function_raising_only_at_its_first_call_fails(kind):
    """The first reading of a result asks whether the case is refused, and passes over other errors."""
    target = SESSION.all_targets(SPEC)[0]
    op, platform = SPEC.op, target.platform.platform
    entry = REGISTRY.find(op, kind, platform)
    own, calls = entry.function if entry else default_parameters, []

    def flaky(*operands, **named):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a cold start")
        return own(*operands, **named)

    trial = Trial(target, example_case(target, SPEC.examples[0]), SESSION.engine)
    with REGISTRY.overridden(op, kind, flaky, platform):
        found = judge(trial, ("arithmetic",))
    assert [verdict.failing for verdict in found] == [True]
    assert "a cold start" in found[0].reason
