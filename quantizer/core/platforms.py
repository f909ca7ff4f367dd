"""Platforms: the arithmetic and parameter rules of one system, declared in op_specs/platforms/*.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import SpecError
from quantizer.core.expressions import parse
from quantizer.core.model import Model
from quantizer.core.model_errors import IDENTIFIER, Finding, suggestion
from quantizer.core.spec import Activation, Expr
from quantizer.core.verdict import CHECKS

RoundingMode = Literal[
    "half_even", "half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero", "stochastic"
]
RatioArithmetic = Literal["float64", "float32_product", "float32"]
"""How the ratio of scales is formed before it becomes a fixed-point multiplier; TensorFlow Lite has all three.

float64: convolutions; float32_product (scales multiplied in float32, divided in float64): fully connected, batch matmul;
float32: mul. Shown on LiteRT 2.3 with 12 to 100 million elements each.
"""
Variant = Literal[
    "exact",
    "f32_even",
    "f32_even_zpin",
    "q31_single",
    "q31_double",
    "ruy",
    "half_away",
    "q15_half_up",
    "multiplier_shift",
    "area_multiplier",
    "f32_dequantized",
    "tpulang_tflite_lshift",
    "tpulang_tflite",
    "tpulang_multiplier_shift",
]


def _word_or_number(value: object) -> str:
    return "<word>" if isinstance(value, str) else "<number>"


_Number = Annotated[int, Field(ge=2, le=64), Tag("<number>")]
MultiplierBits = Annotated[Annotated[Literal["activation"], Tag("<word>")] | _Number, Discriminator(_word_or_number)]
AccumulatorBits = Annotated[Annotated[Literal["scheme"], Tag("<word>")] | _Number, Discriminator(_word_or_number)]
FixedZeroPoint = Annotated[
    Annotated[Literal["min", "middle"], Tag("<word>")] | Annotated[int, Tag("<number>")], Discriminator(_word_or_number)
]
Finite = Annotated[float, Field(allow_inf_nan=False)]


SIGNS = ("signed", "unsigned", "inputs")


class Quantizer(Model):
    """How a real value becomes a code."""

    operation: Literal["exact", "divide_float32", "multiply_float32"] = "exact"
    """exact: x / scale as a real number; divide_float32: float32 x / scale; multiply_float32: float32 x * steps."""
    rounding: RoundingMode = "half_even"
    """How ties and fractions become a code."""
    zero_point: Literal["before", "after"] = "after"
    """Whether the zero point is added before or after rounding; before, ties depend on its parity."""


class ParameterRule(Model):
    """How a calibrated range becomes a scale and a zero point."""

    activation_sign: Literal["signed", "unsigned", "by_range"] = "signed"
    """by_range: an input of the graph that is never negative is unsigned; outputs follow `output_signs`."""
    weight_sign: Literal["signed", "unsigned"] = "signed"
    """Whether weight codes have a sign."""
    weight_groups: str | None = None
    """Attribute: where it is above 1, per-tensor weights have one scale for each of its groups of channels."""
    scale: Literal["float64", "float32", "float32_steps"] = "float32"
    """float32_steps: the float32 number is codes per unit (Compass); the scale is its inverse."""
    zero_point: Literal["range", "compass"] = "range"
    """range: clamped to the codes; compass: clamped to +-(2**(bits-1) - 1) of the negated number."""
    minimum_range: Finite = Field(default=0.0, ge=0.0)
    """A narrower range gives scale 1."""
    minimum_scale: float = Field(default=1.1754943508222875e-38, ge=0.0)
    """A smaller scale becomes 1 (the smallest normal float32)."""
    weights_hold_bias: bool = False
    """A weight scale grows where a bias of `bias_bits` bits would saturate under it (ONNX Runtime)."""
    symmetric_above_bits: int = 64
    """Wider activations are made symmetric and restricted (Compass: 16 bits and more)."""


class Multiplier(Model):
    """How a real ratio becomes the numbers that the integer arithmetic multiplies by."""

    bits: MultiplierBits = 31
    """Significant bits; 'activation': as many as the activation has."""
    ratio: dict[str, RatioArithmetic] = {}
    """Operator family -> arithmetic of the ratio (TensorFlow Lite's kernels differ); float64 where not named."""
    bits_ceiling: int = 31
    """No multiplier has more significant bits."""
    shift_ceiling: int = 31
    """No shift is larger."""
    unify_shifts: bool = False
    """One shift for all channels; where a multiplier would become 0, neighbouring channels share their weight scale."""
    own_shifts: list[str] = []
    """Operator families whose channels keep their own shifts all the same."""


class TableRule(Model):
    """How a function of one input becomes a lookup table."""

    entries: Literal["full", "lut_bits"] = "full"
    """full: one entry for each code; lut_bits: as many as the scheme says, interpolated."""
    arithmetic: Literal["float64", "float32"] = "float64"
    """Number format in which an entry is dequantized, mapped and divided by the output's scale."""
    alignment: Literal["stride", "linspace"] = "stride"
    """stride: each entry belongs to the code that reads it; linspace: Compass's points from the smallest to the largest code."""


class Accumulator(Model):
    """What happens to a sum that leaves the accumulator."""

    bits: AccumulatorBits = "scheme"
    """Bits; 'scheme': as many as the activation part of the scheme says."""
    overflow: Literal["unbounded", "wrap", "saturate", "forbidden"] = "unbounded"
    """unbounded: the arithmetic has no such limit; forbidden: a case that overflows fails."""
    float32: list[str] = []
    """Operator families whose sums are rounded to float32 after each operation."""
    float32_sums: list[str] = []
    """Operators whose sums the real system adds in float32, in the order of a library: built-ins add exactly, a plugin may not."""
    float32_before: list[Activation] = []
    """Fused activations before which an exact sum is rounded to float32."""


class FixedOutput(Model):
    """Output parameters that do not depend on the calibrated range."""

    scale: Finite = Field(gt=0)
    """Real value of one step."""
    zero_point: FixedZeroPoint = 0
    """A code, the smallest code (min), or the middle of the codes."""
    signed: bool | None = None
    """Whether the output codes have a sign; without it, as elsewhere on the platform."""


CASE_NAMES = ("activation_bits", "lut_bits", "weight_bits", "data", "activation", "input_spread", "spread")
"""What the predicate of a defect may name beside dimensions and attributes.

activation: the fused one; input_spread, spread: largest scale over smallest, of the inputs, and of inputs and output."""


class Defect(Model):
    """A known defect of a real system, kept so that the platform stays faithful."""

    id: str
    """Its name, stable for ever."""
    ops: list[str]
    """Operators that show it."""
    predicate: str
    """An expression over the case; where it holds, the named check is expected to fail."""
    checks: list[str]
    """Checks that are expected to fail."""
    reason: str
    """What the real system does, and where that is known from."""
    case: str
    """A stored case that must fail: a path in the folder of stored cases."""


class Platform(Model):
    """The arithmetic and the parameter rules of one system."""

    platform: str = Field(pattern=IDENTIFIER, max_length=40)
    """Its name: the name of the file."""
    summary: str
    """What system it is, in one line."""
    target: str | None = None
    """Which chip or version of the system."""
    schemes: list[str] = Field(min_length=1)
    """Scheme names (weights x activations, and activations alone) that the system has."""
    ops: list[str] | None = None
    """Operators that the system has; None: every operator."""
    named: str | None = None
    """It also has every operator whose spec gives a name under this key of `names`."""
    quantizer: Quantizer = Quantizer()
    """How a real value becomes a code."""
    parameters: ParameterRule = ParameterRule()
    """How a calibrated range becomes a scale and a zero point."""
    rounding: RoundingMode = "half_even"
    """How requantization rounds."""
    requantize: dict[str, Variant]
    """Operator family -> requantization variant; 'default' where a family is not named."""
    multiplier: Multiplier = Multiplier()
    """How a real ratio becomes integers."""
    bias_effective_bits: dict[str, int] = {}
    """Operator family -> bits of a bias that count: where the largest code has more, low bits of all are cleared."""
    significant_bits: dict[Literal["inverse_root"], Expr] = {}
    """Real number between two stages -> significant bits of its format, over activation_bits."""
    accumulator: Accumulator = Accumulator()
    """What happens to a sum that leaves the accumulator."""
    fixed_outputs: dict[str, FixedOutput] = {}
    """Operator -> output parameters that the system fixes."""
    tables: TableRule = TableRule()
    """How a function of one input becomes a lookup table."""
    activations: dict[Activation, Activation] = {"relu": "relu", "relu6": "relu6"}
    """Activations that it fuses -> what the integer arithmetic computes."""
    absorbs_zero_point: list[str] = []
    """Operator families whose bias is kept in float32 together with what the input's zero point adds to the sums (Compass):
    codes of more than 24 bits lose low bits."""
    within_limits: list[str] = []
    """Operator families whose calibrated range is clamped to the smallest and the largest value that the output can have."""
    same_as_input: list[str] = []
    """Operator families whose output takes the parameters of the first input."""
    same_as_equal_inputs: list[str] = []
    """Operator families whose output takes the inputs' parameters where these are all equal."""
    aligned_within: dict[str, Finite] = {}
    """Operator family -> factor: operands are not rescaled where all scales, the output's too, lie within it and all zero
    points are equal."""
    per_channel_weights: list[str] = []
    """Operator families whose weights have a scale for each channel, whatever the scheme."""
    weight_bits: dict[str, Annotated[int, Field(ge=2, le=16)]] = {}
    """Operator family -> bits of its weights, whatever the scheme."""
    output_signs: dict[str, str] = {}
    """Fused activation, or else operator family -> sign of the output: signed, unsigned, inputs (signed when one input
    is), or an expression over attributes that holds where it is signed. Else signed where activations are."""
    index_dtype: str = "int64"
    """Number format of index outputs."""
    defects: list[Defect] = []
    """Known defects of the real system; they do not expire."""


def check_platform(platform: Platform, stem: str) -> list[Finding]:
    """Return what is wrong with *platform* beyond its schema; it was read from a file called *stem*.yaml."""
    findings = []
    if platform.platform != stem:
        text = f"must equal the file's name, got {platform.platform!r}. Write platform: {stem}."
        findings.append(Finding(("platform",), text))
    for key, names in (("schemes", platform.schemes), ("ops", platform.ops or [])):
        findings += [
            Finding((key, index), f"{name!r} is listed before.")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
    for family, sign in platform.output_signs.items():
        if sign not in SIGNS:
            try:
                parse(sign)
            except SpecError as err:
                findings.append(Finding(("output_signs", family), str(err)))
            else:
                if not parse(sign).names - {"unknown"} or sign.isidentifier():
                    text = f"must be {', '.join(SIGNS)} or an expression over attributes, got {sign!r}."
                    findings.append(Finding(("output_signs", family), text + suggestion(sign, SIGNS, "Known")))
    if "default" not in platform.requantize:
        findings.append(
            Finding(("requantize", "default"), "must be given: the variant of families that are not named.")
        )
    if platform.index_dtype not in DTYPES or not DTYPES[platform.index_dtype].is_integer:
        integers = [name for name, dtype in DTYPES.items() if dtype.is_integer]
        text = f"{platform.index_dtype!r}: no such integer format.{suggestion(platform.index_dtype, integers, 'Known')}"
        findings.append(Finding(("index_dtype",), text))
    for key, expression in platform.significant_bits.items():
        for name in sorted(expression.names - {"activation_bits"}):
            findings.append(Finding(("significant_bits", key), f"name {name!r} is not activation_bits."))
    return findings + check_defects(platform.defects, "defects")


def check_defects(defects: Sequence[Defect], key: str, taken: Sequence[str] = ()) -> list[Finding]:
    """Return what is wrong with *defects*, which stand under *key*; ids in *taken* are declared elsewhere."""
    findings = []
    ids = [*taken, *(defect.id for defect in defects)]
    for index, defect in enumerate(defects):
        if defect.id in ids[: len(taken) + index]:
            findings.append(Finding((key, index, "id"), f"{defect.id!r} is the id of another defect."))
        try:
            parse(defect.predicate)
        except SpecError as err:
            findings.append(Finding((key, index, "predicate"), str(err)))
        findings += [
            Finding((key, index, "checks", place), f"no such check.{suggestion(name, CHECKS, 'Known')}")
            for place, name in enumerate(defect.checks)
            if name not in CHECKS
        ]
    return findings
