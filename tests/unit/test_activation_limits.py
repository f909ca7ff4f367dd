"""The limit of a fused relu6 is quantized in the declared requantization, whatever a rule provides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platforms import Platform
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
LIMITS = {"exact": {"operation": "exact", "rounding": "up", "zero_point": "after"}}


def chip() -> Target:
    own = {"platform": "chip", "scheme_families": {}, "activation_limits": LIMITS, "rounding": "half_even"}
    own |= {"activations": {"relu6": "relu6"}}
    platform = Platform.model_validate(SESSION.library.platforms["ideal"].model_dump() | own)
    return Target(SESSION.library.spec("add"), SESSION.library.schemes["a8"], platform)


@pytest.mark.parametrize("hands", [True, False])
def test_the_relu6_limit_follows_the_declared_requantization(hands: bool):
    target = chip()
    rule = REGISTRY.find("add", "quantize", ("ideal",))
    forward = REGISTRY.find("add", "quantized", ("ideal",))
    assert forward is not None

    def quantize(request):
        found = rule.function(request) if rule else default_parameters(request)
        return found if hands else replace(found, rescale=None)

    def quantized(*operands, parameters, **attrs):
        return forward.function(
            *operands, parameters=replace(parameters, rescale=parameters.rescale or kept[0]), **attrs
        )

    cut = 0
    for index in range(16):
        case = build_case(target, HashChoices(key(index, "limits"), {"data": "random", "activation": "relu6"}))
        case = case.but(ranges={"a": (-8.0, 8.0), "b": (-8.0, 8.0), "y": (-1.0, 9.0 + index / 16)})
        kept = [Trial(target, case, SESSION.engine).parameters.rescale]
        with (
            REGISTRY.overridden("add", "quantize", quantize, "chip"),
            REGISTRY.overridden("add", "quantized", quantized, "chip"),
        ):
            trial = Trial(target, case, SESSION.engine)
            assert [v.worst for v in judge(trial, ("arithmetic", "accuracy")) if v.failing] == []
            cut += bool((trial.y >= 6).any())
    assert cut
