"""Wrong functions whose rule hands misleading numbers, hands nothing, or shows stages that nobody declared, are red.

Each pair of operator and platform has another judge or another kind of numbers: factors of sums, one multiplier,
multipliers per channel, full and interpolated tables, exponentials, stages of norms, means, areas, movements, float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from plugin_sandbox import sandbox, target
from torch import Tensor

from quantizer.conformance.generation.stacks import seeded_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Rescale, Staged, Table
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

CHECKS = ("parameters", "arithmetic", "accuracy")
CASES = 2
PAIRS = [
    ("add", "a8", "ideal"),
    ("add", "a8", "tflite_ref"),
    ("add", "a8", "compass"),
    ("leaky_relu", "a8", "tflite_ref"),
    ("leaky_relu", "a8", "compass"),
    ("conv2d", "w8a8", "ideal"),
    ("conv2d", "w8a8", "compass"),
    ("fully_connected", "w8a8", "ort"),
    ("matmul", "a8", "tosa"),
    ("sigmoid", "a8", "ideal"),
    ("sigmoid", "a8", "ort"),
    ("tanh", "a16", "tosa"),
    ("sine", "a8", "compass"),
    ("softmax", "a8", "ideal"),
    ("softmax", "a8", "compass"),
    ("softmax", "a8", "tflite_ref"),
    ("layer_norm", "w8a8", "ideal"),
    ("layer_norm", "w8a8", "compass"),
    ("reduce_mean", "a8", "tflite_builtin"),
    ("avg_pool2d", "a8", "compass"),
    ("max_pool2d", "a8", "ideal"),
    ("quantize", "a8", "ideal"),
    ("relu", "a8", "float32_any_order"),
    ("batch_norm", "w8a8", "compass"),
    ("resize_bilinear", "a8", "ideal"),
]
JUNK = Table(torch.arange(256), first=-128, step=1, unit=1.0, bits=16)
NUMBERS = {"positive": 1, "positive_shift": 1, "negative": 3, "negative_shift": 2, "multiplier": 1, "shift": 0}


def handing_a_variant(parameters: Parameters) -> Parameters:
    """Provide the numbers of another requantization, with multiplier 1 if there was none."""
    known = parameters.rescale or Rescale("exact", torch.tensor(1.0, dtype=torch.float64), torch.tensor(1))
    other = "q31_double" if known.variant == "f32_even" else "f32_even"
    return replace(parameters, rescale=replace(known, variant=other))


HANDS: dict[str, Callable[[Parameters], Parameters]] = {
    "its own": lambda parameters: parameters,
    "nothing": lambda parameters: replace(parameters, rescale=None, tables={}, numbers={}, fused=None),
    "numbers": lambda parameters: replace(parameters, numbers={**parameters.numbers, **NUMBERS}),
    "tables": lambda parameters: replace(
        parameters, tables={**parameters.tables, "period": JUNK, "lut": JUNK, "exp": JUNK}
    ),
    "a variant": handing_a_variant,
}
STAGES: dict[str, Callable[[Tensor], Any]] = {
    "no stages": lambda codes: codes,
    "undeclared stages": lambda codes: Staged(codes, {"sum": codes * 256, "exponentials": codes, "mean": codes}),
}


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    load_built_ins()
    with sandbox():
        yield


def beside(codes: Tensor, parameters: Parameters) -> Tensor:
    """Return codes of which every second one is one step off."""
    wrong = codes.clone().reshape(-1)
    most = next(iter(parameters.outputs.values())).qmax
    wrong[::2] += torch.where(wrong[::2] < most, 1, -1)
    return wrong.reshape(codes.shape)


def failing(chosen: Target, hand: str, wrong: Callable[[Tensor, Parameters], Tensor], stages: str) -> bool:
    """Return whether some case fails with a changed built-in function and the unchanged numbers of its rule."""
    op, places = chosen.spec.op, chosen.platform.places
    rule, kernel = (REGISTRY.built_in(op, kind, places) for kind in ("quantize", "quantized"))
    right: dict[str, Parameters] = {}

    def quantize(request: Request) -> Parameters:
        right["numbers"] = rule.function(request) if rule is not None else default_parameters(request)
        return HANDS[hand](right["numbers"])

    def quantized(*operands: Tensor, parameters: Parameters, **named: Any) -> Any:
        assert kernel is not None
        result = kernel.function(*operands, parameters=right["numbers"], **named)
        codes = result.codes if isinstance(result, Staged) else result
        if isinstance(codes, tuple | list):
            return [wrong(piece, parameters) for piece in codes]
        return STAGES[stages](wrong(codes, parameters))

    name = chosen.platform.platform
    with REGISTRY.overridden(op, "quantize", quantize, name), REGISTRY.overridden(op, "quantized", quantized, name):
        for index in range(CASES):
            trial = Trial(chosen, seeded_case(chosen, index, alone=True), BuiltinEngine())
            if any(verdict.failing for verdict in judge(trial, CHECKS)):
                return True
    return False


def survivors(chosen: Target) -> list[tuple[str, str]]:
    """Return the numbers and stages of wrong functions that no check found."""
    return [
        (hand, stages)
        for hand in HANDS
        for stages in STAGES
        if (stages == "no stages" or hand in ("its own", "nothing")) and not failing(chosen, hand, beside, stages)
    ]


@pytest.mark.parametrize(("op", "scheme", "platform"), PAIRS)
def test_one_code_off_fails_despite_misleading_numbers_and_stages(op: str, scheme: str, platform: str) -> None:
    chosen = target(load_library(), op, scheme, platform)
    assert not failing(chosen, "its own", lambda codes, _: codes, "no stages")
    assert survivors(chosen) == []


FOREIGN = [
    ("mul", "a8", "xnnpack", "tflite_ref"),
    ("leaky_relu", "a8", "tflite_ref", "ideal"),
    ("leaky_relu", "a8", "compass", "ideal"),
    ("sigmoid", "a8", "compass", "ideal"),
    ("matmul", "a8", "ort", "tflite_ref"),
    ("reduce_mean", "a8", "tflite_builtin", "ideal"),
    ("avg_pool2d", "a8", "compass", "ort"),
]
ALIKE = [("softmax", "a8", "ort", "ideal"), ("conv2d", "w8a8", "torch_qnnpack", "torch_fbgemm")]
"""Pairs whose codes differ in so few cases that the numbers alone say it."""


@pytest.mark.parametrize(
    ("op", "scheme", "platform", "other", "shows"),
    [*((*pair, "its numbers") for pair in (*FOREIGN, *ALIKE)), *((*pair, "nothing") for pair in FOREIGN)],
)
def test_numbers_and_codes_of_another_platform_are_red(op, scheme, platform, other, shows) -> None:
    """The numbers that a function provides do not choose its judge, and neither does their absence."""
    library = load_library()
    chosen, there = target(library, op, scheme, platform), library.platform(other)
    rule, kernel = (REGISTRY.built_in(op, kind, there.places) for kind in ("quantize", "quantized"))
    own = REGISTRY.built_in(op, "quantize", chosen.platform.places)
    kept: dict[str, Parameters] = {}

    def quantize(request: Request) -> Parameters:
        moved = replace(request, platform=there)
        kept["there"] = rule.function(moved) if rule is not None else default_parameters(moved)
        if shows == "nothing":
            here = own.function(request) if own is not None else default_parameters(request)
            return HANDS["nothing"](here)
        return replace(kept["there"], platform=request.platform)

    def quantized(*operands: Tensor, parameters: Parameters, **named: Any) -> Any:
        assert kernel is not None
        asked = {"inputs": parameters.inputs, "outputs": parameters.outputs, "constants": parameters.constants}
        result = kernel.function(*operands, parameters=replace(kept["there"], **asked), **named)
        return result.codes if isinstance(result, Staged) else result

    with (
        REGISTRY.overridden(op, "quantize", quantize, platform),
        REGISTRY.overridden(op, "quantized", quantized, platform),
    ):
        assert any(
            verdict.failing
            for index in range(24)
            for verdict in judge(Trial(chosen, seeded_case(chosen, index, alone=True), BuiltinEngine()), CHECKS)
        )


@pytest.mark.parametrize(("op", "scheme", "platform"), [("conv2d", "w8a8", "ideal"), ("conv2d", "w8a8", "tflite_ref")])
def test_a_float32_ratio_fails_on_float64_platforms(op: str, scheme: str, platform: str) -> None:
    chosen, moved = target(load_library(), op, scheme, platform), []

    def quantize(request: Request) -> Parameters:
        right = default_parameters(request)
        assert right.rescale is not None
        near = right.rescale.mantissa.float().double()
        moved.append(not torch.equal(near, right.rescale.mantissa))
        return replace(right, rescale=replace(right.rescale, mantissa=near))

    with REGISTRY.overridden(op, "quantize", quantize, platform):
        for index in range(5):
            moved.clear()
            trial = Trial(chosen, seeded_case(chosen, index, alone=True), BuiltinEngine())
            assert any(verdict.failing for verdict in judge(trial, ("parameters",))) == any(moved)
