"""For any requantization, rounding and width of a platform, built-in functions pass, or lint refuses it in one line."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import get_args

import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.arithmetics import COMPOSING, refusal
from quantizer.core.linting import lint
from quantizer.core.platform_settings import Accumulator
from quantizer.core.platforms import Platform
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.schemes import ActivationPart, Scheme, WeightPart
from quantizer.core.variants import Variant

SESSION = open_session(Options(root=Path.cwd()))
IDEAL = SESSION.library.platforms["ideal"]
OPS = (
    "add",
    "sub",
    "maximum",
    "where",
    "concat",
    "conv2d",
    "fully_connected",
    "matmul",
    "mul",
    "reduce_mean",
    "reduce_sum",
    "relu",
    "negative",
    "avg_pool2d",
    "leaky_relu",
    "sigmoid",
)
ROUNDINGS = tuple(mode for mode in get_args(RoundingMode) if mode != "stochastic")
"""Lint refuses stochastic rounding by itself."""
BITS = (31, 24, 16, 15, 7)
SCHEMES = ("w8a8", "w8a16", "w8pta8", "a8", "a16")
DATA = ("ties", "random", "saturation")


def chip(variant: Variant, rounding: RoundingMode, bits: int) -> Platform:
    """Return the platform `ideal` with another requantization."""
    fields = IDEAL.model_dump()
    multiplier = {**fields["multiplier"], "bits": bits}
    return Platform.model_validate(
        fields
        | {"platform": "chip", "requantize": {"default": variant}, "rounding": rounding, "multiplier": multiplier}
    )


def failures(platform: Platform, op: str, cases: int) -> list[str]:
    found = []
    spec = SESSION.library.spec(op)
    for target in SESSION.all_targets(spec):
        if (
            target.platform.platform != "ideal"
            or target.scheme.name not in SCHEMES
            or target.scheme.name not in platform.schemes
        ):
            continue
        own = Target(spec, target.scheme, platform)
        for index in range(cases):
            case = build_case(own, HashChoices(key(index, own.id), {"data": DATA[index % len(DATA)]}))
            found += [
                f"{own.id}: {verdict.check}: {verdict.reason or verdict.worst}"
                for verdict in judge(Trial(own, case, SESSION.engine), ("parameters", "arithmetic", "accuracy"))
                if verdict.failing
            ]
    return found


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("op", OPS)
def test_every_combination_is_green_or_refused(op: str, each: int):
    """Every requantization with every rounding, and every width, distributed over the operators; nightly, for each."""
    spec, red = SESSION.library.spec(op), []
    combinations = [*enumerate(itertools.product(get_args(Variant), ROUNDINGS))]
    for index, (variant, rounding) in combinations[OPS.index(op) % each :: each]:
        platform = chip(variant, rounding, BITS[(index + index // len(BITS)) % len(BITS)])
        if refusal(platform, spec, variant) is None:
            red += [f"{variant} {rounding} {platform.multiplier.bits}: {text}" for text in failures(platform, op, 1)]
    assert red == []


def test_supported_requantization_and_operator_pairs_are_accepted():
    accepted = {
        (variant, op)
        for variant, op in itertools.product(get_args(Variant), OPS)
        if refusal(chip(variant, "half_even", 24), SESSION.library.spec(op), variant) is None
    }
    assert {op for variant, op in accepted if variant == "exact"} == set(OPS)
    assert {variant for variant, op in accepted if op not in ("leaky_relu", "sigmoid")} >= {
        "exact",
        "f32_even",
        "f32_even_zpin",
        "multiplier_shift",
        "f32_dequantized",
    }
    assert all(variant in COMPOSING for variant, op in accepted if op not in ("leaky_relu", "sigmoid"))


CHIP = """platform: chip
summary: A chip of its own.
schemes: [w8a8, a8]
ops: [{ops}]
parameters: {{scale: float32}}
requantize: {{default: {variant}}}
rounding: {rounding}
multiplier: {{bits: {bits}}}
accumulator: {{bits: 64, overflow: forbidden}}
"""


def linted(folder: Path, ops: str, variant: str, rounding: str = "half_even", bits: int = 31) -> list[str]:
    (folder / "platforms").mkdir(exist_ok=True)
    file = folder / "platforms" / "chip.yaml"
    file.write_text(CHIP.format(ops=ops, variant=variant, rounding=rounding, bits=bits))
    return lint([file])[0]


@pytest.mark.parametrize(
    ("ops", "variant", "rounding", "bits", "said"),
    [
        ("add", "q31_half_up", "half_even", 31, "q31_half_up has no rule for a sum"),
        ("conv2d", "q31_folded", "half_even", 31, "q31_folded has no rule for a product"),
        ("conv2d", "f32_add_in_lanes", "half_even", 31, "the arithmetic of one system"),
        ("mul", "q31_double", "half_away", 16, "multiplies by 31 bits"),
        ("mul", "multiplier_shift", "half_even", 31, "of 24 bits at most"),
        ("add", "f32_even", "half_down", 31, "rounds half_even, the limit of a fused relu6 half_down"),
    ],
)
def test_lint_names_a_requantization_without_a_rule_in_one_line(
    tmp_path: Path, ops: str, variant: str, rounding: str, bits: int, said: str
):
    (problem,) = linted(tmp_path, ops, variant, rounding, bits)
    assert said in problem
    assert "chip.yaml:" in problem


def test_lint_refuses_codes_per_unit_of_an_empty_range(tmp_path: Path):
    """A range of zeros ended in "scale 0.0: must be positive" in the first such case."""
    (tmp_path / "platforms").mkdir()
    file = tmp_path / "platforms" / "chip.yaml"
    text = CHIP.format(ops="concat", variant="exact", rounding="half_even", bits=31)
    file.write_text(text.replace("scale: float32", "scale: float32_steps"))
    (problem,) = lint([file])[0]
    assert "parameters: minimum_range must be above 0 with scale: float32_steps" in problem
    file.write_text(text.replace("scale: float32", "scale: float32_steps, minimum_range: 1.0e-7"))
    assert lint([file])[0] == []


def test_lint_accepts_a_chip_with_rules_for_all_sums(tmp_path: Path):
    assert linted(tmp_path, "conv2d, add, reduce_mean, sigmoid", "multiplier_shift", "down", 16) == []


@pytest.mark.parametrize("op", ["avg_pool2d", "add", "concat", "conv2d", "leaky_relu", "sigmoid", "softmax"])
def test_a_renamed_platform_still_passes(op: str):
    ort = SESSION.library.platforms["ort"]
    assert failures(ort.model_copy(update={"platform": "ort2"}), op, 6) == []


OWN_PARTS = {"bits": 10, "symmetry": "asymmetric", "accumulator_bits": 48}


def fails_alone(
    op: str, activation: dict[str, object], weight: dict[str, object] | None, **fields: object
) -> list[str]:
    """Return the failures of *op* on `ideal` with other *fields*, under a scheme of these parts."""
    platform = Platform.model_validate(IDEAL.model_dump() | {"platform": "chip", "scheme_families": {}} | fields)
    part = None if weight is None else WeightPart.model_validate(weight)
    scheme = Scheme(name="own", activation=ActivationPart.model_validate(activation), weight=part)
    target = Target(SESSION.library.spec(op), scheme, platform)
    found = []
    for index in range(12):
        case = build_case(target, HashChoices(key(index, target.id), {"data": DATA[index % len(DATA)]}))
        verdicts = judge(Trial(target, case, SESSION.engine), ("parameters", "arithmetic", "accuracy"))
        found += [f"{verdict.check}: {verdict.reason or verdict.worst}" for verdict in verdicts if verdict.failing]
    return found


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("sigmoid", {"tables": {"segments": 64}}),
        ("sigmoid", {"tables": {"segments": 16, "interpolation": "half_up"}, "rounding": "half_up"}),
        ("exp", {"quantizer": {"zero_point": "before"}, "rounding": "toward_zero"}),
        ("relu", {"requantize": {"default": "multiplier_shift"}, "multiplier": {"bits": 2, "max_shift": 47}}),
        ("relu", {"parameters": {"scale": "float32_steps", "minimum_range": 1e-7}}),
        ("abs", {"requantize": {"default": "q31_double"}}),
        ("gather_elements", {"shared_parameters": ["movement"]}),
        ("gather", {"parameters": {"scale": "float64"}, "quantizer": {"rounding": "up"}}),
        ("layer_norm", {"requantize": {"default": "multiplier_shift"}, "multiplier": {"bits": 15}}),
        ("resize_bilinear", {"requantize": {"default": "multiplier_shift"}, "multiplier": {"bits": 15}}),
        ("reduce_l2", {"accumulator": {"bits": 20, "overflow": "saturate"}}),
        ("reduce_mean", {"requantize": {"default": "f32_even_zpin"}}),
        ("pad", {"full_range_outputs": ["pad"]}),
        ("quantize", {"quantizer": {"rounding": "up"}, "enclosing": {"format": "float32"}}),
        ("quantize", {"shared_parameters": ["boundary"]}),
        ("conv_transpose2d", {"parameters": {"weights_hold_bias": True, "scale": "float32"}}),
        ("conv2d", {"activation_limits": {"default": {"rounding": "up"}}, "activations": {"relu6": "relu6"}}),
    ],
)
def test_platform_settings_that_once_failed_pass(op: str, fields: dict[str, object]):
    """Each setting is the smallest one of a class of random platforms on which a correct built-in function failed."""
    spec = SESSION.library.spec(op)
    weight = {"bits": 8, "bias_bits": 48} if spec.has_weights else None
    assert fails_alone(op, OWN_PARTS, weight, **fields) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"requantize": {"default": "multiplier_shift"}, "multiplier": {"bits": 20, "max_shift": 12}},
        {"requantize": {"default": "q31_single"}, "multiplier": {"bits": 31, "max_bits": 8}},
        {"requantize": {"default": "q31_single"}, "multiplier": {"bits": 3}},
        {"parameters": {"weights_hold_bias": True}},
    ],
)
def test_products_obey_every_limit_of_multipliers(fields: dict[str, object]):
    assert fails_alone("conv2d", {"bits": 8}, {"bits": 6, "bias_bits": 40}, **fields) == []


def test_a_64_bit_accumulator_wraps_like_int64():
    platform = IDEAL.model_copy(update={"accumulator": Accumulator(bits=64, overflow="wrap")})
    target = Target(SESSION.library.spec("matmul"), SESSION.library.scheme("a8"), platform)
    trial = Trial(target, build_case(target, HashChoices(key(0, target.id), {})), SESSION.engine)
    assert [verdict.status for verdict in judge(trial, ("exact",))] == ["pass"]


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_block_sums_overflow_the_accumulator_as_declared(overflow: str):
    fields = {"accumulator": {"bits": 16, "overflow": overflow}, "scheme_families": {"own": ["fully_connected"]}}
    weight = {"bits": 12, "granularity": "block", "block": 4}
    assert fails_alone("fully_connected", {"bits": 9, "symmetry": "symmetric"}, weight, **fields) == []
