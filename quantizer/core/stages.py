"""Declared stages: the roundings of an operator that rounds more than once, each with a value, a format and a mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from quantizer.core.errors import SpecError
from quantizer.core.expressions import Expression, parse
from quantizer.core.model import Model
from quantizer.core.real_expressions import RealExpression, evaluate_number, parse_real
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.wording import got

MAX_BITS = 32
_SCHEMA = {"type": ["string", "number"]}


def _to_real(value: object) -> RealExpression:
    if isinstance(value, RealExpression):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        # pydantic collects ValueError only
        raise ValueError(f"must be a number or an expression over real numbers, got {got(value)}")  # noqa: TRY004
    try:
        return parse_real(value if isinstance(value, str) else repr(value))
    except SpecError as err:
        raise ValueError(str(err).rstrip(".")) from None


def _to_whole(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    if type(value) is not int and not isinstance(value, str):
        raise ValueError(f"must be a whole number or an expression, got {got(value)}")
    try:
        return parse(str(value))
    except SpecError as err:
        raise ValueError(str(err).rstrip(".")) from None


Real = Annotated[RealExpression, PlainValidator(_to_real), WithJsonSchema(_SCHEMA)]
"""A number, or an expression over real numbers."""
Whole = Annotated[Expression, PlainValidator(_to_whole), WithJsonSchema({"type": ["string", "integer"]})]
"""A whole number, or an expression over dimensions and attributes."""


class Stage(Model):
    """One rounding: a real number becomes a code, `round(value / scale)`, clamped to the codes."""

    value: Real
    """What is rounded: an expression over operands, earlier stages, dimensions and attributes, with + - * /, abs, erf,
    exp, gelu (by erf), log, relu, sigmoid, silu, sqrt, square, tanh, max(a, b), min(a, b), and along an axis that
    stays with size 1: sum(x, axis), mean(x, axis), greatest(x, axis). Operands count with their real values."""
    bits: Whole | None = None
    """Bits of a code, 2 to 32: an expression over activation_bits, dimensions and attributes. The output has no such
    key: its format is the scheme's."""
    signed: bool = True
    """Whether codes have a sign."""
    scale: Real | None = None
    """Real value of one code: an expression over dimensions, attributes, activation_bits, and for each operand and
    earlier stage NAME its NAME_scale, NAME_low and NAME_high (the real values of its smallest and largest code). The
    output has none."""
    rounding: RoundingMode | None = None
    """The rounding of the stage; if absent, the platform's."""


@dataclass(frozen=True)
class StageFormat:
    """The codes of one stage: `real = scale * code`, code in [qmin, qmax]."""

    bits: int
    signed: bool
    scale: float

    @property
    def qmin(self) -> int:
        """The smallest code."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def qmax(self) -> int:
        """The largest code."""
        return (1 << (self.bits - self.signed)) - 1

    def numbers(self, name: str) -> dict[str, float]:
        """Return the variables of stage *name* that later scale expressions may use."""
        return ends_of(name, self.scale, self.scale * self.qmin, self.scale * self.qmax)


def ends_of(name: str, scale: float, low: float, high: float) -> dict[str, float]:
    """Return the variables of an operand that the scale expression of a stage may use."""
    return {f"{name}_scale": scale, f"{name}_low": low, f"{name}_high": high}


def numbers_of(bound: Mapping[str, Any], activation_bits: int) -> dict[str, float]:
    """Return the dimensions and attributes that are numbers, and the bits of activations."""
    plain = {name: float(value) for name, value in bound.items() if isinstance(value, int | float)}
    return {**plain, "activation_bits": float(activation_bits)}


def stage_formats(
    stages: Mapping[str, Stage], bound: Mapping[str, Any], activation_bits: int, operands: Mapping[str, float]
) -> dict[str, StageFormat]:
    """Return the format of every stage except the output; SpecError if an expression gives no format.

    *bound*: dimensions and attributes; *operands*: scales and ends by name (`ends_of`).
    """
    found: dict[str, StageFormat] = {}
    numbers = {**numbers_of(bound, activation_bits), **operands}
    for name, stage in stages.items():
        # the output, whose format is the scheme's
        if stage.bits is None or stage.scale is None:
            continue
        bits = stage.bits({**bound, "activation_bits": activation_bits})
        if type(bits) is not int or not 2 <= bits <= MAX_BITS:
            raise SpecError(f"stages.{name}.bits: {stage.bits.text} must be 2 to {MAX_BITS}, got {got(bits)}.")
        scale = evaluate_number(stage.scale, numbers)
        if not 0.0 < scale < math.inf:
            raise SpecError(f"stages.{name}.scale: {stage.scale.text} must be above 0 and finite, got {scale}.")
        found[name] = StageFormat(bits, stage.signed, scale)
        # later stages may use the scale and the ends of earlier ones
        numbers |= found[name].numbers(name)
    return found
