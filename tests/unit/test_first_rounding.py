"""A platform that rounds a scaled sum twice: the built-in functions are right on it, a kernel that rounds once is found."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.case_classes.near_ties import near_ties
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platform_rules import check_platform
from quantizer.core.platforms import Platform
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
FIRST = {"fraction_bits": 8, "rounding": "half_up"}
EXACT_MEANS = {"average_pooling": "exact"}


def chip(**more) -> Platform:
    """Return `ideal` with sums times 15 bits that are rounded half up to 8 binary places, then half to even."""
    fields = SESSION.library.platforms["ideal"].model_dump()
    rules = {
        "platform": "ideal",
        "requantize": {"default": "multiplier_shift", **EXACT_MEANS},
        "multiplier": {**fields["multiplier"], "bits": 15, "max_bits": 15},
        "first_rounding": FIRST,
        **more,
    }
    return Platform.model_validate(fields | rules)


def verdicts(op: str, platform: Platform, count: int = 3):
    for target in SESSION.all_targets(SESSION.library.spec(op)):
        if target.platform.platform != "ideal" or target.scheme.name not in ("w8a8", "a8"):
            continue
        own = dataclasses.replace(target, platform=platform)
        sets = [data for data in ("ties", "random", "saturation", "every_code") if data in target.spec.data]
        cases = [
            build_case(own, HashChoices(key(index, "twice", data, own.id), {"data": data}))
            for index, data in itertools.product(range(count), sets)
        ]
        for case in [*cases, *near_ties(own)]:
            yield from judge(Trial(own, case, SESSION.engine), ("parameters", "arithmetic", "accuracy"))


@pytest.mark.parametrize(
    "op",
    ["add", "avg_pool2d", "concat", "conv2d", "depthwise_conv2d", "fully_connected", "leaky_relu", "matmul", "maximum",
     "mul", "reduce_mean", "reduce_sum", "relu", "sigmoid", "sub"],
)  # fmt: skip
def test_builtin_functions_pass_with_a_first_rounding(op: str):
    found = [(v.check, v.reason, v.worst) for v in verdicts(op, chip()) if v.failing]
    assert found == []


@pytest.mark.parametrize("mode", ["down", "up", "toward_zero", "half_away"])
@pytest.mark.parametrize("op", ["conv2d", "add"])
def test_builtin_functions_pass_with_any_first_rounding_mode(op: str, mode: str):
    platform = chip(first_rounding={"fraction_bits": 2, "rounding": mode})
    assert [v.worst for v in verdicts(op, platform) if v.failing] == []


@pytest.mark.parametrize("op", ["conv2d", "fully_connected", "matmul", "mul", "add", "relu", "concat"])
def test_a_kernel_that_rounds_once_is_found(op: str):
    function = REGISTRY.find(op, "quantized", "ideal").function

    def once(*operands, parameters, **attrs):
        platform = parameters.platform.model_copy(update={"first_rounding": None})
        return function(*operands, parameters=dataclasses.replace(parameters, platform=platform), **attrs)

    with REGISTRY.overridden(op, "quantized", once, "ideal"):
        coarse = chip(first_rounding={"fraction_bits": 3, "rounding": "half_up"})
        assert any(v.failing for v in verdicts(op, coarse, 6))


def test_first_rounding_needs_multiplier_shift():
    platform = chip(requantize={"default": "exact"})
    (finding,) = check_platform(platform, "ideal")
    assert finding.location == ("first_rounding",) and "only multiplier_shift" in finding.text
