"""A forward that writes into its operands fails its own case, and no other."""

from pathlib import Path

import pytest

from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
SPEC = SESSION.library.spec("add")
TARGET = next(target for target in SESSION.all_targets(SPEC) if target.id == "add-a8-ideal")


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (lambda parameters: parameters.inputs["a"].zero_point.sub_(3), "the zero point of a"),
        (lambda parameters: parameters.outputs["y"].scale.mul_(2), "the scale of y"),
        (lambda parameters: parameters.rescale.mantissa.add_(1), "the multiplier"),
    ],
)
def test_parameters_written_by_a_forward_are_named_and_restored(written, what):
    forward = REGISTRY.get("add", "quantized", "ideal")
    cases = [example_case(TARGET, example) for example in SPEC.examples]

    def writes(a, b, *, parameters):
        codes = forward(a, b, parameters=parameters)
        written(parameters)
        return codes

    with REGISTRY.overridden("add", "quantized", writes, "ideal"):
        found = [verdict for case in cases for verdict in judge(Trial(TARGET, case, SESSION.engine))]
    assert any(verdict.failing and verdict.reason.endswith(f"wrote into {what}") for verdict in found)
    for case in cases:
        assert not [verdict for verdict in judge(Trial(TARGET, case, SESSION.engine)) if verdict.failing]
