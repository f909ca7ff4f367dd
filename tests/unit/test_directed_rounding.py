"""Platforms with directed rounding: built-in functions pass, kernels and tables of another mode fail."""

import dataclasses
from pathlib import Path

import pytest
import torch

from quantizer.conformance.expected.parameters import activation_codes
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import dtype
from quantizer.core.platform_rules import check_platform
from quantizer.numerics.activations import activate_codes
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
DIRECTED = ("down", "up", "toward_zero")


def ideal_targets(op):
    return [t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.platform.platform == "ideal"]


def rounding(target, mode, **more):
    return dataclasses.replace(target, platform=target.platform.model_copy(update={"rounding": mode, **more}))


def cases(target, sets=("ties", "random", "saturation")):
    for data in sets:
        row = {"data": data} if data in target.spec.data else {}
        yield build_case(target, HashChoices(key(3, "directed", data, target.id), row))


def failing(target, case):
    return [verdict for verdict in judge(Trial(target, case, SESSION.engine)) if verdict.failing]


@pytest.mark.parametrize("op", SESSION.library.specs)
def test_no_alarm_on_a_platform_that_rounds_in_a_direction(op):
    for number, target in enumerate(ideal_targets(op)):
        turned = rounding(target, DIRECTED[number % 3])
        for case in cases(turned, ("random",)):
            assert not failing(turned, case), case.to_json()


@pytest.mark.parametrize("mode", DIRECTED)
@pytest.mark.parametrize("op", ["add", "conv2d", "matmul", "mul", "prelu", "layer_norm", "quantize"])
def test_no_alarm_on_a_quantizer_that_rounds_in_a_direction(op, mode):
    for target in ideal_targets(op):
        quantizer = target.platform.quantizer.model_copy(update={"rounding": mode})
        turned = rounding(target, mode, quantizer=quantizer)
        for case in cases(turned):
            assert not failing(turned, case), case.to_json()


@pytest.mark.parametrize("mode", DIRECTED)
@pytest.mark.parametrize(("op", "kind"), [("conv2d", "quantized"), ("add", "quantized"), ("sigmoid", "quantize")])
def test_nearest_rounding_is_found_on_a_directed_platform(op, kind, mode):
    function = REGISTRY.find(op, kind, "ideal").function

    def to_nearest(platform):
        return platform.model_copy(update={"rounding": "half_even"})

    def quantize(request):
        return dataclasses.replace(
            function(dataclasses.replace(request, platform=to_nearest(request.platform))), platform=request.platform
        )

    def quantized(*operands, parameters, **attrs):
        return function(
            *operands, parameters=dataclasses.replace(parameters, platform=to_nearest(parameters.platform)), **attrs
        )

    wrong = {"quantize": quantize, "quantized": quantized}[kind]
    turned = rounding(ideal_targets(op)[0], mode)
    with REGISTRY.overridden(op, kind, wrong, "ideal"):
        found = [verdict for case in cases(turned) for verdict in failing(turned, case)]
    assert found
    assert not any("raised" in verdict.reason for verdict in found)


@pytest.mark.parametrize("part", ["rounding", "quantizer", "kernel_quantizer"])
def test_a_platform_that_rounds_at_random_is_refused(part):
    ideal = ideal_targets("add")[0].platform
    value = "stochastic" if part == "rounding" else ideal.quantizer.model_copy(update={"rounding": "stochastic"})
    (found,) = check_platform(ideal.model_copy(update={part: value}), "ideal")
    assert found.location[0] == part
    assert "stochastic" in found.text


@pytest.mark.parametrize("scale", [0.75, 2.4000000953674316, 4.0, 12.0])
@pytest.mark.parametrize("mode", [*DIRECTED, "half_even", "half_up", "half_down", "half_away", "half_toward_zero"])
def test_a_room_quantizes_the_relu6_limit_in_the_platform_rounding(mode, scale):
    platform = SESSION.library.platform("ideal").model_copy(update={"rounding": mode})
    output = QParams(dtype("uint8"), torch.tensor(scale), torch.tensor(3), 0, 255)
    held = Parameters(platform, {}, {"y": output})
    low, high = activation_codes(platform, "exact", "relu6", (0, 255), float(output.scale), 3)
    assert activate_codes(torch.tensor([0, 255]), output, "relu6", held).tolist() == [low, high]
