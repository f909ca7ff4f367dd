"""Platforms that round a scaled sum twice have cases that show it, also for operators without a bias."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.case_classes.twice_rounded import CASES, RIVALS, _differs, twice_rounded
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.platforms import Platform
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))
IDEAL = SESSION.library.platforms["ideal"]


def chip(**fields: object) -> Platform:
    own = {
        "platform": "chip",
        "scheme_families": {},
        "requantize": {"default": "multiplier_shift"},
        "multiplier": {"bits": 15},
        "first_rounding": {"fraction_bits": 8, "rounding": "half_up"},
    }
    return Platform.model_validate(IDEAL.model_dump() | own | fields)


@pytest.mark.parametrize("op", ["add", "concat", "cumsum", "matmul", "mul", "reduce_mean", "reduce_sum"])
def test_a_kernel_that_rounds_once_fails(op: str):
    target = Target(SESSION.library.spec(op), SESSION.library.schemes["a16"], chip())
    cases = twice_rounded(target)
    assert 0 < len(cases) <= CASES + len(RIVALS)
    original = REGISTRY.find(op, "quantized", ("chip",)) or REGISTRY.find(op, "accumulate", ("chip",))
    assert original is not None

    def once(*args, parameters, **attrs):
        platform = parameters.platform.model_copy(update={"first_rounding": None})
        return original.function(*args, parameters=replace(parameters, platform=platform), **attrs)

    for case in cases:
        assert not arithmetic(Trial(target, case, SESSION.engine)).failing
    with REGISTRY.overridden(op, "quantized", once, None):
        assert twice_rounded(target) == cases
        verdicts = [arithmetic(Trial(target, case, SESSION.engine)) for case in cases]
    assert any(verdict.failing for verdict in verdicts)


def test_a_platform_that_rounds_once_has_no_such_cases():
    scheme = SESSION.library.schemes["a16"]
    assert twice_rounded(Target(SESSION.library.spec("add"), scheme, chip(first_rounding=None))) == []


@pytest.mark.parametrize("op", ["add", "concat", "conv2d", "fully_connected", "matmul", "reduce_sum"])
def test_another_first_rounding_mode_changes_some_codes(op: str):
    first = {"fraction_bits": 4, "rounding": "half_away"}
    spec, platform = SESSION.library.spec(op), chip(multiplier={"bits": 12}, first_rounding=first)
    target = Target(spec, SESSION.library.schemes["w8a8" if spec.has_weights else "a8"], platform)
    cases = twice_rounded(target)
    for mode in RIVALS[:3]:
        rival = platform.first_rounding.model_copy(update={"rounding": mode})
        assert any(_differs(target, rival, case) for case in cases), mode


@pytest.mark.parametrize("op", ["concat", "global_avg_pool2d", "matmul", "mul", "reduce_mean", "reduce_sum"])
def test_a_first_rounding_at_8_fraction_bits_gives_other_codes(op: str):
    first = {"fraction_bits": 8, "rounding": "half_away"}
    target = Target(SESSION.library.spec(op), SESSION.library.schemes["a8"], chip(first_rounding=first))
    cases = twice_rounded(target)
    for mode in RIVALS[:3]:
        rival = target.platform.first_rounding.model_copy(update={"rounding": mode})
        assert any(_differs(target, rival, case) for case in cases), mode


@pytest.mark.parametrize("first", [None, {"fraction_bits": 4, "rounding": "half_toward_zero"}])
def test_a_24_bit_multiplier_one_less_changes_codes(first: dict[str, object] | None):
    wide = chip(multiplier={"bits": 24, "max_bits": 24, "max_shift": 40}, first_rounding=first)
    target = Target(SESSION.library.spec("depthwise_conv2d"), SESSION.library.schemes["w8a8"], wide)
    cases = [build_case(target, HashChoices(key(i, target.id), {"data": "near_ties"})) for i in range(12)]
    assert not any(arithmetic(Trial(target, case, SESSION.engine)).failing for case in cases)

    class Less:
        def __getattr__(self, name: str) -> object:
            return getattr(SESSION.engine, name)

        def run(self, call, codes, parameters):
            less = replace(parameters.rescale, mantissa=parameters.rescale.mantissa - 1)
            return SESSION.engine.run(call, codes, replace(parameters, rescale=less))

    assert any(arithmetic(Trial(target, case, Less())).failing for case in cases)
