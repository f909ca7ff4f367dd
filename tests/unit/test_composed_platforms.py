"""Platforms of new combinations of settings: built-in functions pass, one code off fails."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.core.platforms import Platform
from quantizer.core.schemes import ActivationPart, Scheme
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.numerics.tables import tabulated
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

CASES = range(8, 14)
LIBRARY_FUNCTIONS = {"tanh": torch.tanh, "sqrt": torch.sqrt, "hard_swish": torch.nn.functional.hardswish}
WIDENED = {"requantize": {"default": "q31_single"}, "multiplier": {"shifts": [0, 62], "sum_shift": 7}}
STEPLESS = {"quantizer": {"operation": "multiply_float32"}}
SPREAD = {"tables": {"entries": "lut_bits", "alignment": "linspace"}}
PAIRS = [
    # What is subtracted counts as much as what is added where float32 rounds a sum.
    ("negative", "near_ties", {"requantize": {"default": "f32_even"}}, {"bits": 14}),
    ("sub", "random", {"requantize": {"default": "f32_even_zpin"}}, {"bits": 16}),
    # A condition has no scale, and each of the other operands goes to the output alone.
    ("where", "random", WIDENED, {"bits": 8}),
    # Without steps, the float32 inverse of the scale multiplies.
    ("quantize", "near_ties", STEPLESS, {"bits": 16}),
    # Segments of 8 codes each, also for codes of 8 bits.
    ("sigmoid", "random", {"tables": {"segments": 32, "full_bits": 7, "interpolation": "half_up"}}, {"bits": 8}),
    # Restricted codes lack the smallest code of their format; a table may repeat an entry for it.
    ("cosine", "random", SPREAD, {"bits": 8, "symmetry": "symmetric", "range": "restricted"}),
]


def target(op: str, settings: dict[str, Any], activation: dict[str, Any]) -> Target:
    scheme = Scheme(name="own", activation=ActivationPart.model_validate(activation))
    named = {"platform": "chip", "summary": "A chip.", "schemes": ["own"], "requantize": {"default": "exact"}}
    return Target(load_library().specs[op], scheme, Platform.model_validate(named | settings))


def failing(target: Target, data: str) -> list[str]:
    """Return the checks that fail in some cases of *data*."""
    found = []
    for index in CASES:
        case = build_case(target, HashChoices(key(index, target.id, "composed"), {"data": data}))
        verdicts = judge(Trial(target, case, BuiltinEngine()), ("parameters", "arithmetic", "accuracy"))
        found += [verdict.check for verdict in verdicts if verdict.failing]
    return found


@pytest.fixture(autouse=True, scope="module")
def built_ins() -> None:
    load_built_ins()


@pytest.mark.parametrize(("op", "data", "settings", "activation"), PAIRS)
def test_builtin_functions_pass_and_one_code_off_fails(
    op: str, data: str, settings: dict[str, Any], activation: dict[str, Any]
) -> None:
    chip = target(op, settings, activation)
    assert failing(chip, data) == []
    own = REGISTRY.get(op, "quantized", "chip")

    def beside(*operands: torch.Tensor, parameters: Any, **named: Any) -> torch.Tensor:
        right, out = own(*operands, parameters=parameters, **named), parameters.outputs["y"]
        return torch.where(right < out.qmax, right + 1, right - 1)

    with REGISTRY.overridden(op, "quantized", beside, "chip"):
        assert "arithmetic" in failing(chip, data)


def test_an_operand_with_multiplier_0_is_accepted() -> None:
    chip = target("concat", {"requantize": {"default": "q31_double"}}, {"bits": 8})
    case = build_case(chip, HashChoices(key(1, chip.id, "composed"), {}))
    far = dict.fromkeys(case.ranges, (-(2.0**20), 2.0**20)) | {"a": (-(2.0**-20), 2.0**-20)}
    trial = Trial(chip, case.but(ranges=far), BuiltinEngine())
    assert trial.parameters.rescale is not None and trial.parameters.rescale.factors["a"] == 0
    assert [v.check for v in judge(trial, ("parameters", "arithmetic", "accuracy")) if v.failing] == []


@pytest.mark.parametrize("rounding", ["up", "down", "toward_zero"])
@pytest.mark.parametrize("op", ["tanh", "sqrt", "hard_swish"])
def test_directed_rounding_keeps_whole_numbers(op: str, rounding: str) -> None:
    """f(0) is 0: float64 is exact there, so that no neighbouring code is allowed."""
    chip = target(op, {"rounding": rounding}, {"bits": 8})
    assert failing(chip, "random") == []

    def off_at_zero(request: Request) -> Parameters:
        right = tabulated(request, LIBRARY_FUNCTIONS[op])
        table, zero = right.tables["lut"], int(right.inputs["x"].zero_point)
        entries = table.entries.clone()
        entries[zero - table.first] += -1 if rounding == "down" else 1
        return replace(right, tables={"lut": replace(table, entries=entries)})

    with REGISTRY.overridden(op, "quantize", off_at_zero, "chip"):
        assert "parameters" in failing(chip, "random")


@pytest.mark.parametrize("factor", [1 + 2.0**-9, math.nan, math.inf])
@pytest.mark.parametrize("op", ["add", "reduce_sum", "reduce_mean"])
def test_a_non_integer_multiplier_fails(op: str, factor: float) -> None:
    """Of 3 bits it may be nearer to the ratio of scales than each whole number."""
    chip = target(op, {"requantize": {"default": "multiplier_shift"}, "multiplier": {"bits": 3}}, {"bits": 8})
    built_in = REGISTRY.find(op, "quantize", chip.platform.places)
    rule = default_parameters if built_in is None else built_in.function

    def between(request: Request) -> Parameters:
        right = rule(request)
        assert right.rescale is not None
        return replace(right, rescale=replace(right.rescale, mantissa=right.rescale.mantissa * factor))

    assert failing(chip, "random") == []
    with REGISTRY.overridden(op, "quantize", between, "chip"):
        case = build_case(chip, HashChoices(key(0, chip.id, "composed"), {"data": "random"}))
        (verdict,) = judge(Trial(chip, case, BuiltinEngine()), ("parameters",))
        assert verdict.worst is not None
        assert verdict.worst.allowed == "multiplier_shift: a multiplier is a whole number"
        assert failing(chip, "random").count("parameters") == len(CASES)
