"""Expected scales and zero points of activations: a second implementation that shares nothing with `numerics`.

`parameters` compares the numbers from a quantize rule with these. Sources: cases/reference, and the running systems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import rational_codes
from quantizer.core.case import Case, Range
from quantizer.core.dtypes import DType, dtype, integer
from quantizer.core.expressions import parse
from quantizer.core.formats import format_of
from quantizer.core.platform_settings import ParameterRule, Quantizer
from quantizer.core.platforms import Platform, computed_activation
from quantizer.core.schemes import ActivationPart, Scheme
from quantizer.core.spec import Spec

Array = NDArray[Any]
F32 = np.float32


@dataclass(frozen=True)
class Expected:
    """Parameters that a rule must choose: `scale` float64 and `zero_point`, per channel or single."""

    dtype: DType
    scale: Array
    zero_point: Array
    qmin: int
    qmax: int
    steps: Array | None = None
    blocks: tuple[int, int] | None = None
    """(axis, elements) of blocks along an axis.

    `scale` and `zero_point` then have a row per channel, a column per block.
    """
    span: Range | None = None
    """The range from which they were chosen; None if they are not chosen from a range.

    It contains 0, and has no negative part if codes are unsigned because no value is negative.
    """


def code_ends(bits: int, *, signed: bool, restricted: bool) -> tuple[int, int]:
    """Return the smallest and the largest code; a restricted range leaves out the most negative one."""
    if not signed:
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)) + (1 if restricted else 0), 2 ** (bits - 1) - 1


def _power_of_two(scale: float) -> float:
    exact = Fraction(scale)
    # starts too low, so that a rounded logarithm cannot skip the right power
    exponent = math.floor(math.log2(scale)) - 1
    while Fraction(2) ** exponent < exact:
        exponent += 1
    return float(Fraction(2) ** exponent)


def choose(
    low: float,
    high: float,
    bits: int,
    rule: ParameterRule,
    *,
    signed: bool,
    symmetric: bool,
    restricted: bool,
    power_of_two: bool,
) -> tuple[float, int, float | None]:
    """Return (scale, zero point, steps) for one range that contains zero."""
    qmin, qmax = code_ends(bits, signed=signed, restricted=restricted and symmetric)
    largest = max(-low, high)
    if symmetric:
        low, high = (-largest if signed else 0.0), largest
    if rule.scale == "float32_steps":
        width = F32(high - low)
        steps = F32(qmax - qmin) / width if width >= F32(rule.minimum_range) and width > 0 else F32(1.0)
        if power_of_two:
            steps = F32(1.0 / _power_of_two(1.0 / float(steps)))
        zero = 0
        if not symmetric:
            zero = _held_zero(qmin - int(np.rint(steps * F32(low))), qmin, qmax, bits, rule)
        return 1.0 / float(steps), zero, float(steps)
    scale = (high - low) / (qmax - qmin)
    dead = scale < rule.minimum_scale
    if dead:
        scale = 1.0
    elif power_of_two:
        scale = _power_of_two(scale)
    # an empty range: the code nearest to 0
    zero = min(max(0, qmin), qmax) if dead else 0
    if not dead and not symmetric:
        zero = _held_zero(int(np.rint(qmin - low / scale)), qmin, qmax, bits, rule)
    return (float(F32(scale)) if rule.scale == "float32" else scale), zero, None


def _held_zero(zero: int, qmin: int, qmax: int, bits: int, rule: ParameterRule) -> int:
    """Return the nearest zero point that the rule allows: a code, or the negation of a signed integer."""
    bound = 2 ** (bits - 1) - 1
    low, high = (-bound, bound) if rule.zero_point == "negated" else (qmin, qmax)
    return min(high, max(low, zero))


def activation(span: Range, part: ActivationPart, rule: ParameterRule, *, signed: bool) -> Expected:
    """Return the parameters that the rule chooses for a calibrated range."""
    if part.format != "integer":
        return _float_activation(span, part.format, rule)
    symmetric, restricted = _is_symmetric(part, rule), part.range == "restricted"
    # the rule makes wide formats symmetric, without the most negative code
    if symmetric and part.symmetry != "symmetric":
        restricted = True
    scale, zero, steps = choose(
        min(span[0], 0.0),
        max(span[1], 0.0),
        part.bits,
        rule,
        signed=signed,
        symmetric=symmetric,
        restricted=restricted,
        power_of_two=part.rule == "power_of_two",
    )
    qmin, qmax = code_ends(part.bits, signed=signed, restricted=restricted and symmetric)
    return Expected(
        integer(part.bits, signed=signed),
        np.array(scale),
        np.array(zero),
        qmin,
        qmax,
        None if steps is None else np.array(steps, dtype=F32),
        span=(min(span[0], 0.0) if signed or rule.activation_sign != "by_range" else 0.0, max(span[1], 0.0)),
    )


def _is_symmetric(part: ActivationPart, rule: ParameterRule) -> bool:
    return part.symmetry == "symmetric" or part.bits > rule.symmetric_above_bits


def _float_activation(span: Range, name: str, rule: ParameterRule) -> Expected:
    """Return the parameters for a narrow float: the largest magnitude of the range gets the largest value."""
    form, largest = format_of(name), max(abs(span[0]), abs(span[1]))
    scale = largest / max(form.values)
    if scale < rule.minimum_scale:
        scale = 1.0
    scale = float(F32(scale)) if rule.scale == "float32" else scale
    held = min(span[0], 0.0), max(span[1], 0.0)
    return Expected(dtype(name), np.array(scale), np.array(0), form.first, form.last, span=held)


def own_codes() -> Expected:
    """Return the parameters of indices: 32-bit codes that are their own values."""
    kind = dtype("int32")
    return Expected(kind, np.array(1.0), np.array(0), kind.min, kind.max, np.array(1.0, dtype=F32))


def limit_code(limit: float, scale: float, zero: int, quantizer: Quantizer) -> int:
    """Return the code of an activation's limit on a platform with its own rule for it."""
    if quantizer.operation == "exact":
        ratio = Fraction(limit) / Fraction(scale)
    elif quantizer.zero_point == "before":
        ratio = Fraction(float(F32(limit) / F32(scale) + F32(zero))) - zero
    else:
        ratio = Fraction(float(F32(limit) / F32(scale)))
    shift = zero if quantizer.zero_point == "before" else 0
    low, high = rational_codes(ratio + shift, quantizer.rounding)
    assert low == high, "a limit is rounded to one code"
    return low - shift + zero


def output(
    spec: Spec,
    name: str,
    scheme: Scheme,
    platform: Platform,
    case: Case,
    inputs: Mapping[str, Expected],
) -> Expected:
    """Return the parameters that the rule chooses for output *name*."""
    chosen = spec.quantization.outputs.get(name, "calibrated")
    if chosen.startswith("same_as"):
        # the operand's name in `same_as(name)`
        given = inputs[chosen[8:-1]]
        if spec.op not in platform.full_range_outputs:
            return given
        return replace(given, qmin=given.dtype.min, qmax=given.dtype.max)
    family = spec.quantization.family
    if not inputs:
        return _calibrated(spec, name, scheme, platform, case, inputs)
    first = inputs[spec.activations[0]]
    alike = {(e.dtype.name, float(e.scale), int(e.zero_point)) for e in inputs.values()}
    if family in platform.same_as_input or (family in platform.same_as_equal_inputs and len(alike) == 1):
        return first
    if family in platform.ones_complement_outputs:
        middle = 2 ** (scheme.activation.bits - 1)
        last = -1 if first.dtype.kind == "int" else middle - 1
        kind = integer(first.dtype.bits, signed=True)
        return Expected(kind, first.scale, last - first.zero_point, -middle, middle - 1, first.steps)
    if chosen == "index":
        kind = dtype(platform.index_dtype)
        ends = (0, 1) if spec.outputs[name].kind == "mask" else (kind.min, kind.max)
        return Expected(kind, np.array(1.0), np.array(0), *ends)
    return _calibrated(spec, name, scheme, platform, case, inputs)


def _calibrated(
    spec: Spec, name: str, scheme: Scheme, platform: Platform, case: Case, inputs: Mapping[str, Expected]
) -> Expected:
    """Return the parameters that the rule chooses for a range, or a fixed replacement."""
    family, rule = spec.quantization.family, platform.parameters
    sign = platform.output_signs.get(case.activation, platform.output_signs.get(spec.quantization.family))
    if sign == "inputs":
        signed = any(expected.dtype.kind == "int" for expected in inputs.values())
    elif sign is not None and sign not in ("signed", "unsigned"):
        signed = bool(parse(sign)(dict(case.attrs)))
    else:
        signed = sign == "signed" if sign else rule.activation_sign != "unsigned"
    fixed = platform.fixed_outputs.get(spec.op)
    if fixed is not None:
        fixed = fixed.wide if fixed.wide is not None and scheme.activation.bits > 8 else fixed
        kind = integer(scheme.activation.bits, signed=signed if fixed.signed is None else fixed.signed)
        low_code, high_code = code_ends(scheme.activation.bits, signed=kind.kind == "int", restricted=False)
        zero = {"min": low_code, "middle": 0}.get(str(fixed.zero_point), fixed.zero_point)
        return Expected(kind, np.array(fixed.scale), np.array(int(zero)), low_code, high_code)
    if family in platform.unit_range_above_8_bits and scheme.activation.bits > 8:
        part = scheme.activation.model_copy(update={"symmetry": "symmetric", "range": "restricted"})
        return activation((-1.0, 1.0), part, rule, signed=True)
    low, high = platform.fixed_ranges.get(spec.op) or case.ranges[name]
    if family in platform.clamp_range_to_output_limits:
        item, bound = spec.outputs[name], dict(case.attrs)
        least = -math.inf if item.min is None else float(F32(item.min(bound)))
        most = math.inf if item.max is None else float(F32(item.max(bound)))
        # the middle one of three numbers is the clamped end
        low, high = sorted((low, least, most))[1], sorted((high, least, most))[1]
    part = scheme.activation
    if part.fast and family in platform.tables.fast:
        high, part = 1.0, part.model_copy(update={"symmetry": "symmetric"})
    found = activation((low, high), part, rule, signed=signed)
    if sign is None or signed or found.span is None or not _is_symmetric(part, rule):
        return found
    # Declared unsigned codes without a zero point have no negative values.
    return replace(found, span=(0.0, found.span[1]))


def activation_codes(
    platform: Platform, variant: str, activation: str, codes: tuple[int, int], scale: float, zero: int
) -> tuple[int, int]:
    """Return the smallest and the largest code that a fused activation lets through."""
    low, high = codes
    name = computed_activation(platform, activation)
    if name in ("relu", "relu6"):
        low = max(low, zero)
    if name == "relu6":
        own = platform.limit(variant)  # type: ignore[arg-type]
        own = own or Quantizer(operation="exact", rounding=platform.rounding, zero_point="after")
        high = max(low, min(high, limit_code(6.0, scale, zero, own)))
    return low, high


def input_range(spec: Spec, name: str, platform: Platform, case: Case) -> Range:
    """Return the range for the parameters of input *name*: its own range, or the common range of all inputs."""
    if spec.quantization.family not in platform.shared_parameters:
        return case.ranges[name]
    values = [other for other in spec.activations if other in case.shapes and spec.inputs[other].kind != "index"]
    spans = [case.ranges[other] for other in values]
    return min(low for low, _ in spans), max(high for _, high in spans)


def input_sign(span: Range, rule: ParameterRule) -> bool:
    """Return whether an input of the graph is signed."""
    return span[0] < 0 if rule.activation_sign == "by_range" else rule.activation_sign == "signed"
