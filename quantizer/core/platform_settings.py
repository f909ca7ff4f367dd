"""What the keys of a platform's file hold: its arithmetic and its rules for parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from quantizer.core.model import Model
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.spec_values import Activation, Expr
from quantizer.core.variants import RatioArithmetic, Variant


def _word_or_number(value: object) -> str:
    return "<word>" if isinstance(value, str) else "<number>"


_Number = Annotated[int, Field(ge=2, le=64), Tag("<number>")]
MultiplierBits = Annotated[Annotated[Literal["activation"], Tag("<word>")] | _Number, Discriminator(_word_or_number)]
AccumulatorBits = Annotated[Annotated[Literal["scheme"], Tag("<word>")] | _Number, Discriminator(_word_or_number)]
FixedZeroPoint = Annotated[
    Annotated[Literal["min", "middle"], Tag("<word>")] | Annotated[int, Tag("<number>")], Discriminator(_word_or_number)
]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NARROW_BITS = 8
"""Up to this number of activation bits the usual arithmetic holds; above it the wide one, if the system has one."""


SIGNS = ("signed", "unsigned", "inputs")
# 2**-126; below it float32 numbers have fewer significant bits
SMALLEST_SCALE = 1.1754943508222875e-38
"""The smallest normal float32 number."""


class Quantizer(Model):
    """How a real value becomes a code."""

    operation: Literal["exact", "divide_float32", "multiply_float32", "inverse_float32"] = "exact"
    """exact: x / scale as a real number; divide_float32: float32 x / scale; multiply_float32: float32 x * steps;
    inverse_float32: float32 x * (1 / scale), with `zero_point: before` one rounding covers product and addition (FMA).
    Without steps (`parameters: {scale: float32_steps}`) multiply_float32 multiplies by 1 / scale, too.
    """
    rounding: RoundingMode = "half_even"
    """How a value between two codes, or exactly half way, is rounded."""
    zero_point: Literal["before", "after"] = "after"
    """Whether the zero point is added before or after rounding. If before, ties depend on its parity."""
    nan: Literal["zero", "lowest"] = "zero"
    """Code of NaN: 0 or the smallest code."""


class ParameterRule(Model):
    """How a calibrated range becomes a scale and a zero point."""

    activation_sign: Literal["signed", "unsigned", "by_range"] = "signed"
    """by_range: a graph input that is never negative is unsigned; outputs follow `output_signs`."""
    weight_sign: Literal["signed", "unsigned"] = "signed"
    """Whether weight codes have a sign."""
    weight_groups: str | None = None
    """An attribute. Where it is above 1, per-tensor weights have one scale per group of channels."""
    scale: Literal["float64", "float32", "float32_steps"] = "float32"
    """float32_steps: the float32 number is codes per unit; the scale is its inverse."""
    zero_point: Literal["range", "negated"] = "range"
    """range: it is clamped to the codes; negated: the negated zero point is clamped to +-(2**(bits-1) - 1)."""
    minimum_range: Finite = Field(default=0.0, ge=0.0)
    """A narrower range gives scale 1."""
    minimum_scale: Finite = Field(default=SMALLEST_SCALE, ge=SMALLEST_SCALE)
    """A smaller scale becomes 1. At least the smallest normal float32."""
    weights_hold_bias: bool = False
    """Increase the weight scale if a bias of `bias_bits` bits would overflow."""
    symmetric_above_bits: int = 64
    """Activations of more bits than this are symmetric, and their smallest code is unused."""


class Multiplier(Model):
    """How a real ratio becomes the numbers that the integer arithmetic multiplies by."""

    bits: MultiplierBits = 31
    """Significant bits; 'activation': as many bits as the activation has."""
    ratio: dict[str, RatioArithmetic] = {}
    """Operator family -> arithmetic of the ratio. Families that are not named use float32 if they have one operand and
    no weights, else float64."""
    max_bits: int = 31
    """The largest number of significant bits of a multiplier."""
    max_shift: int = 31
    """The largest shift."""
    unify_shifts: bool = False
    """Whether all channels share one shift. Where a multiplier would become 0, neighbouring channels then share a
    weight scale."""
    positive_shifts: bool = False
    """A ratio that needs a negative shift gets the shift 0 and the largest multiplier."""
    own_shifts: list[str] = []
    """Operator families that are exempt from `unify_shifts`: each channel keeps its own shift."""
    unscaled: list[str] = []
    """Operator families that use the multiplier 1 under multiplier_shift if both operands have equal parameters, for
    any scale of the output."""
    overflow: Literal["exact", "x86"] = "exact"
    """Result if a shift or a rounded product overflows its integers; x86: the result of the processor's
    instructions."""
    shifts: Annotated[list[Annotated[int, Field(ge=0, le=62)]], Field(min_length=2, max_length=2)] | None = None
    """The smallest and the largest shift that the form of a fixed-point multiplier holds. A ratio that needs a larger
    one keeps fewer bits; a case that needs a smaller one is not supported. None: a ratio below 2**-32 becomes 0,
    the largest is 2**30."""
    left_shift: Annotated[int, Field(ge=0, le=24)] = 20
    """The left shift of operands of a sum, in bits, before q31_double multiplies and rounds each of them."""
    wide_left_shift: Annotated[int, Field(ge=0, le=24)] = 15
    """`left_shift` for activations of more than 8 bits."""
    sum_shift: Annotated[int, Field(ge=0, le=24)] | None = None
    """The number of bits by which operands of a sum are widened.

    Each operand is then multiplied to twice the larger scale and rounded, before the addition. None: the family's
    variant decides."""
    wide_sum_shift: Annotated[int, Field(ge=0, le=24)] | None = None
    """`sum_shift` for activations of more than 8 bits."""

    def places(self, bits: int) -> int:
        """Return the left shift that q31_double applies to operands of *bits* bits."""
        return self.wide_left_shift if bits > NARROW_BITS else self.left_shift

    def width(self, activation_bits: int) -> int:
        """Return the bits of a multiplier under activations of so many bits."""
        # wide activations would otherwise ask for multipliers that the system cannot hold
        return min(activation_bits if self.bits == "activation" else self.bits, self.max_bits)


class TableRule(Model):
    """How a function of one input becomes a lookup table."""

    entries: Literal["full", "lut_bits"] = "full"
    """full: one entry per code; lut_bits: as many entries as the scheme says, interpolated."""
    arithmetic: Literal["float64", "float32"] = "float64"
    """Number format in which an entry is dequantized, mapped and divided by the output's scale."""
    exponential: Literal[
        "exact",
        "fixed_point",
        "float32",
        "power_of_two",
        "power_of_two_halves",
        "power_of_two_table",
        "float24",
    ] = "exact"
    """How softmax computes exponentials. fixed_point: in 32 bits (of 16 bits without the shortcut for powers of two).
    power_of_two: whole exponents, the logarithm of their sum truncated; power_of_two_halves: rounded to halves;
    power_of_two_table: exponents with fraction_bits, both from tables. float24: in floating point of 24 bits."""
    exponential_bits: Annotated[int, Field(ge=0, le=30)] = 20
    """Bits of an entry in an integer table of exponentials; 0: as many as the axis leaves of 32 bits, at least 16."""
    fraction_bits: Annotated[int, Field(ge=8, le=15)] = 8
    """Fractional bits of an exponent under power_of_two_table."""
    fast: dict[str, Literal["power_of_two", "power_of_two_halves"]] = {}
    """Operator family -> how it computes exponentials under a fast scheme: the values of `exponential`."""
    alignment: Literal["stride", "linspace"] = "stride"
    """stride: each entry belongs to the code that reads it; linspace: points at equal distances over all codes."""
    no_guard_entry: list[str] = []
    """Operator families whose linspace tables begin at the smallest used code. Under a restricted range the smallest
    code of the format is unused, and the table has no entry for it."""
    segments: Annotated[int, Field(ge=2, le=32768)] | None = None
    """The number of segments in the table of an activation of more than `full_bits` bits. The table has one entry more.
    None: as `entries` says."""
    full_bits: Annotated[int, Field(ge=1, le=16)] = NARROW_BITS
    """If `segments` is given: activations of up to this many bits keep a table as `entries` says."""
    interpolation: Literal["down", "half_up"] = "down"
    """How a value between two entries is rounded."""

    def segments_of(self, bits: int) -> int | None:
        """Return the segments of the table of an activation of *bits* bits; None: its table is as in `entries`."""
        return self.segments if bits > self.full_bits else None


class Choice(Model):
    """A requantization variant that a family has in some cases."""

    when: Expr
    """The condition. It may use dimensions, attributes, activation_bits, weight_bits, operands (names of those that are
    present), zero_points (of the activations, in their order), ratios (float32, of their scales to the output's) and
    product_ratio (float32, of the product of their scales)."""
    variant: Variant
    """The variant where the condition holds."""


class FirstRounding(Model):
    """A first rounding of the scaled sum to a number of binary places, before the rounding to a code."""

    fraction_bits: Annotated[int, Field(ge=1, le=24)]
    """Binary places that are left. A product that is shifted by at most this many places is not rounded here."""
    rounding: RoundingMode = "half_up"
    """How the sum is rounded to these binary places."""


class AnyOrder(Model):
    """Float32 sums whose order is not declared."""

    ops: list[str] = Field(min_length=1)
    """The operators."""
    when: Expr | None = None
    """A condition on dimensions and attributes; if absent, all cases of the operators."""

    def holds(self, op: str, values: Mapping[str, Any]) -> bool:
        """Return whether the order of sums is undeclared for *op* in a case with these dimensions and attributes."""
        return op in self.ops and (self.when is None or bool(self.when(values)))


class Accumulator(Model):
    """What happens to a sum that leaves the accumulator."""

    bits: AccumulatorBits = "scheme"
    """Bits of a sum of products with its bias; 'scheme': the number that the scheme's activation part declares."""
    overflow: Literal["unbounded", "wrap", "saturate", "forbidden"] = "unbounded"
    """unbounded: no overflow is possible; forbidden: a case that overflows fails; saturate: the complete sum or each
    partial sum is clamped, in any order; a code is right if some order gives it."""
    float32: list[str] = []
    """Operator families whose sums are rounded to float32 after each operation."""
    float32_sums: list[str] = []
    """Operators whose sums the real system adds in float32, in a library's order. Built-ins add exactly."""
    any_order: list[AnyOrder] = []
    """Sums that the real system adds in float32, in an order that the memory of its operands may choose. A plugin's
    function may do so, too: its codes may depend on the memory of its operands, and each of them must be right."""
    float32_before: list[Activation] = []
    """Fused activations before which an exact sum is rounded to float32."""


class FixedOutput(Model):
    """Output parameters that do not depend on the calibrated range."""

    scale: Finite = Field(gt=0)
    """Real value of one step."""
    zero_point: FixedZeroPoint = 0
    """A code, the smallest code (min), or the middle of the codes."""
    signed: bool | None = None
    """Whether the output codes have a sign. If absent, the rule of the platform holds."""
    wide: FixedOutput | None = None
    """Replacement for outputs of more than 8 bits."""

    def of(self, bits: int) -> FixedOutput:
        """Return the setting for outputs of *bits* bits."""
        return self.wide if self.wide is not None and bits > NARROW_BITS else self


CHOICE_NAMES = ("activation_bits", "weight_bits", "operands", "zero_points", "ratios", "product_ratio")
"""Names that the condition of a Choice may use besides dimensions and attributes."""


class Enclosing(Model):
    """An arithmetic that is not known bit for bit: operations of one format, in any order and in any grouping.

    A code is right if some order gives it, so results are judged by intervals that follow from the format.
    """

    format: Literal["float32"]
    """Format of each operand, product, sum and quotient; each rounds once."""


class Release(Model):
    """Settings that changed in a release of the system, while the platform kept its name.

    A run of the real engine is judged by the settings of the engine's version. Everything else is judged by the
    platform's own settings, which are those of the oldest supported version.
    """

    engine: str
    """The engine whose versions count, without a variant."""
    first: str
    """The first version that has these settings. They hold until the next entry."""
    reason: str
    """What changed, and how it is known."""
    quantizer: Quantizer
    """The `quantizer` from this version on; it replaces the platform's."""
