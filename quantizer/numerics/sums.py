"""Factors and multipliers for adding operands that have different scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.core.families import OWN_MULTIPLIERS, SEPARATE
from quantizer.core.platforms import Platform
from quantizer.core.variants import Variant
from quantizer.numerics import sum_rescaling
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import (
    fixed,
    float32_multiplier,
    rescale_widened,
    whole,
)

FACTOR_BITS = 15
FACTOR_LIMIT = (1 << FACTOR_BITS) - 1
FLOAT32_EPSILON = torch.finfo(torch.float32).eps
IN_SCALES: tuple[Variant, ...] = (
    "exact",
    "f32_dequantized",
    "f32_add_in_lanes",
    "f32_dequantized_fused",
    "aligned_half_away",
    "f32_mean_divided",
    "f32_mean_zpin",
    "f32_mean_raw",
    "f32_mean_inverse",
)
"""Requantizations whose factors are the input scales, and whose divisor is the output scale."""


def rescale_sum(
    platform: Platform,
    family: str,
    inputs: Mapping[str, QParams],
    output: QParams,
    activation_bits: int,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    count: int = 1,
    variant: Variant | None = None,
) -> Rescale:
    """Return the factors and the multiplier of `f(factor * (code - zero_point))`; f is a sum or a selection (maximum).

    *count*: the divisor of a mean; 1 if there is no single divisor. *variant*: the case's variant, if it differs from
    the family's. The variant decides the numbers:

    * `IN_SCALES`: the factors are the input scales, and the divisor is the output scale.
    * Other float32 variants: the factors are float32 ratios of input scale to output scale.
    * multiplier_shift: two operands that meet get integer factors of 15 bits and one multiplier. The operands of a
      concatenation, and a single operand, get a multiplier each.
    * Fixed point on a platform that widens operands: as `rescale_widened` says. An operand that is rescaled to the
      output separately gets its own multiplier.
    * area_multiplier, area_reciprocal: no factors; the area of each window gives the multiplier.
    """
    variant = variant or platform.requantize.get(family, platform.requantize["default"])
    if variant in IN_SCALES:
        factors = {name: float(params.step) for name, params in inputs.items()}
        return _unscaled(variant, divisor=float(output.scale), factors=factors)
    if variant in ("area_multiplier", "area_reciprocal"):
        return _unscaled(variant)
    if variant in ("f32_even", "f32_even_zpin"):
        return _float32_ratios(variant, inputs, output, shapes, count)
    if variant == "multiplier_shift" and len(inputs) > 1 and family not in SEPARATE:
        rescaled = family not in platform.multiplier.unscaled
        return _crossed_sum(platform, inputs, output, activation_bits, rescaled=rescaled)
    if variant == "multiplier_shift":
        return _ratio_of_each(platform, family, inputs, output, activation_bits, count)
    if variant in ("q31_single", "q31_double") and platform.multiplier.sum_shift is not None:
        return _widened_sum(platform, family, variant, inputs, output, activation_bits, count)
    if variant in sum_rescaling.VARIANTS:
        rule = platform.multiplier
        ratio = rule.ratio.get(family, "float32")
        return sum_rescaling.rescale(variant, inputs, output, rule.places(activation_bits), count, ratio)
    raise UnsupportedError(f"{family} on {platform.platform}: variant {variant} has no rule for sums.")


def _unscaled(variant: Variant, **numbers: Any) -> Rescale:
    """Return numbers with the multiplier 1: only the factors or a divisor scale the sum."""
    return Rescale(variant, torch.tensor(1.0, dtype=torch.float64), torch.tensor(0), **numbers)


def _float32_ratios(
    variant: Variant,
    inputs: Mapping[str, QParams],
    output: QParams,
    shapes: Mapping[str, tuple[int, ...]],
    count: int,
) -> Rescale:
    """Return input scale / output scale for each input as float32, in the order in which kernels add the inputs."""
    order = _kernel_order(shapes, list(inputs)) if variant == "f32_even_zpin" else list(inputs)
    divisor = output.scale.float() * count
    return _unscaled(variant, factors={name: float(inputs[name].scale.float() / divisor) for name in order})


def _widened_sum(
    platform: Platform,
    family: str,
    variant: Variant,
    inputs: Mapping[str, QParams],
    output: QParams,
    activation_bits: int,
    count: int,
) -> Rescale:
    """Return the fixed-point factors of a sum on a platform that widens operands."""
    scales = {name: float(params.scale) for name, params in inputs.items()}
    if len(inputs) > 1 and family not in OWN_MULTIPLIERS:
        # in one sum the operands must first reach a common scale; otherwise each goes straight to the output's
        return rescale_widened(platform, variant, scales, float(output.scale), activation_bits)
    unit = float(output.scale) * count
    ends = {name: whole(*fixed(platform, variant, scale / unit, activation_bits)) for name, scale in scales.items()}
    return _unscaled(variant, factors=ends)


def rescale_alone(platform: Platform, x: QParams, output: QParams, activation_bits: int) -> Rescale:
    """Return the multiplier that brings one operand's centred codes to the output's scale."""
    return _ratio_of_each(platform, "", {"x": x}, output, activation_bits, 1)


def _ratio_of_each(
    platform: Platform, family: str, inputs: Mapping[str, QParams], output: QParams, activation_bits: int, count: int
) -> Rescale:
    """Return a multiplier and a shift for each operand; for a single operand they are those of the sum."""
    share = torch.tensor(1.0 / count, dtype=torch.float32)
    reach = platform.aligned_within.get(family)
    # scales that are this close count as equal, and codes pass unchanged
    everything = [*inputs.values(), output]
    if reach is not None and _aligned(everything, reach):
        return _unscaled("multiplier_shift", factors=dict.fromkeys(inputs, 1.0))
    rule = platform.multiplier
    numbers = {
        name: float32_multiplier(
            share * (_steps(output) / _steps(params)),
            rule.width(activation_bits),
            rule.max_bits,
            rule.max_shift,
            positive=rule.positive_shifts,
        )
        for name, params in inputs.items()
    }
    if len(numbers) == 1:
        ((mantissa, shift),) = numbers.values()
        return Rescale("multiplier_shift", mantissa.double(), shift.long(), factors=dict.fromkeys(numbers, 1.0))
    pairs = {name: (int(mantissa), int(shift)) for name, (mantissa, shift) in numbers.items()}
    factors = {name: float(mantissa) * 2.0**-shift for name, (mantissa, shift) in pairs.items()}
    return _unscaled("multiplier_shift", factors=factors, pairs=pairs)


def _kernel_order(shapes: Mapping[str, tuple[int, ...]], names: list[str]) -> list[str]:
    """Return two operands in the order that element-wise kernels with float32 ratios use.

    The innermost axis of more than one element decides. An operand that broadcasts along it comes second, as a scalar.
    If no such axis exists, the first operand is that scalar.
    """
    match names:
        case [first, second]:
            # from the innermost axis outwards; shapes of different rank are aligned at their last axis
            pairs = zip(reversed(shapes[first] or (1,)), reversed(shapes[second] or (1,)), strict=False)
            size = next((a for a, b in pairs if max(a, b) > 1), 1)
            return [first, second] if size > 1 else [second, first]
        case _:
            return names


def _aligned(tensors: list[QParams], reach: float) -> bool:
    """Return whether all zero points are equal and, in float64, no scale exceeds *reach* times another."""
    steps = [float(_steps(params)) for params in tensors]
    zeros = {int(params.zero_point) for params in tensors}
    return max(steps) / (min(steps) + FLOAT32_EPSILON) <= reach and len(zeros) == 1


def _crossed_sum(
    platform: Platform, inputs: Mapping[str, QParams], output: QParams, activation_bits: int, *, rescaled: bool
) -> Rescale:
    """Return integer factors, each proportional to the other operand's steps, and the multiplier that undoes them.

    y = f((a - za) * k_a, (b - zb) * k_b) * m * 2**-n, k_a ~ steps_b, k_b ~ steps_a, float32 arithmetic. Operands with
    equal parameters have no factors. Without *rescaled* they have no multiplier either, whatever the output scale.
    """
    if len(inputs) != 2:
        raise UnsupportedError(
            f"{platform.platform}: a sum has two operands, got {len(inputs)}. Name the platform under excludes."
        )
    first, second = inputs
    steps_a, steps_b, steps_y = (_steps(p) for p in (inputs[first], inputs[second], output))
    rule = platform.multiplier
    bits = rule.width(activation_bits)
    if _equal(inputs[first], inputs[second]):
        one = torch.ones_like(steps_a)
        mantissa, shift = float32_multiplier(
            steps_y / steps_a if rescaled else one,
            bits,
            rule.max_bits,
            rule.max_shift,
            positive=rule.positive_shifts,
        )
        return Rescale("multiplier_shift", mantissa.double(), shift.long(), factors={first: 1.0, second: 1.0})
    mantissa_a, shift_a = float32_multiplier(steps_a, FACTOR_BITS)
    mantissa_b, shift_b = float32_multiplier(steps_b, FACTOR_BITS)
    # factor_a ~ steps_b * 2**common, factor_b ~ steps_a * 2**common: integers, and the multiplier undoes them
    common = torch.maximum(shift_a, shift_b)
    factor_a = mantissa_b.float() * torch.pow(2.0, (common - shift_b).float())
    factor_b = mantissa_a.float() * torch.pow(2.0, (common - shift_a).float())
    ratio = steps_y / (steps_b * steps_a) / torch.pow(2.0, common.float())
    # a factor beyond 15 bits shrinks, and the other one with it, so that their proportion stays
    shrink = torch.maximum(factor_a, factor_b) / FACTOR_LIMIT
    if bool(shrink > 1.0):
        factor_a, factor_b, ratio = factor_a / shrink, factor_b / shrink, ratio * shrink
    mantissa, shift = float32_multiplier(ratio, bits, rule.max_bits, rule.max_shift)
    # the kernel shifts only to the right, so a left shift goes into the multiplier
    if int(shift) < 0:
        mantissa = (mantissa.float() * 2.0 ** -int(shift)).clamp(1, FACTOR_LIMIT)
        shift = torch.zeros_like(shift)
    factors = {
        first: float(factor_a.round().clamp(0, FACTOR_LIMIT)),
        second: float(factor_b.round().clamp(0, FACTOR_LIMIT)),
    }
    return Rescale("multiplier_shift", mantissa.double(), shift.long(), factors=factors)


def _steps(params: QParams) -> Tensor:
    return params.steps if params.steps is not None else (1.0 / params.scale).float()


def _equal(a: QParams, b: QParams) -> bool:
    """Return whether codes can be added directly: equal zero points, and steps equal up to float32's epsilon."""
    largest, smallest = torch.maximum(_steps(a), _steps(b)), torch.minimum(_steps(a), _steps(b))
    return bool(largest / (smallest + FLOAT32_EPSILON) <= 1.0) and int(a.zero_point) == int(b.zero_point)
