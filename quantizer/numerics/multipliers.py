"""How a positive real ratio becomes the numbers that an integer forward multiplies and shifts by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.platforms import Platform, RatioArithmetic, Variant
from quantizer.numerics.qparams import Rescale
from quantizer.numerics.rounding import round_tensor

FLOAT32_EPSILON = 1.1920929e-07
LEFT_SHIFT = 20
"""Bits by which TensorFlow Lite's 8-bit add widens its terms."""


def fixed_point(ratio: Tensor | float, bits: int = 31) -> tuple[Tensor, Tensor]:
    """Return int64 (mantissa, shift) with `ratio ~ mantissa * 2**-shift`, the mantissa in [2**(bits-1), 2**bits).

    TFLite's QuantizeMultiplier: the fraction of frexp, rounded half away; a ratio below 2**-32 becomes (0, bits), one
    of 2**30 and more the largest mantissa with 30 shifts left. GraphError if the ratio is not positive and finite.
    """
    ratio = _positive(ratio)
    fraction, exponent = torch.frexp(ratio)
    exponent = exponent.to(torch.int64)
    mantissa = round_tensor(fraction * 2.0**bits, "half_away").to(torch.int64)
    carry = mantissa == 1 << bits
    mantissa = torch.where(carry, mantissa >> 1, mantissa)
    exponent = exponent + carry.to(torch.int64)
    vanishes, overflows = exponent < -31, exponent > 30
    mantissa = torch.where(vanishes, 0, torch.where(overflows, (1 << bits) - 1, mantissa))
    exponent = torch.where(vanishes, 0, exponent.clamp_max(30))
    return mantissa, bits - exponent


def q15(ratio: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the 31-bit multiplier rounded half-up to 15 bits and saturated (TFLite's path for 64-bit accumulators)."""
    mantissa, shift = fixed_point(ratio)
    reduced = torch.where(mantissa < 0x7FFF0000, (mantissa + (1 << 15)) >> 16, 0x7FFF)
    return reduced, shift - 16


def compass(ratio: Tensor, bits: int, bits_ceiling: int = 15, shift_ceiling: int = 31) -> tuple[Tensor, Tensor]:
    """Return Compass's int64 (multiplier, shift) of a float32 ratio, in its own float32 arithmetic.

    The shift is the largest that keeps the multiplier in its bits, at most the ceiling, and may be negative. Where all
    channels together come out as exactly 1, the pair is (1, 0).
    """
    ratio = _positive(ratio, torch.float32)
    largest = torch.tensor(2.0 ** min(bits, bits_ceiling) - 1.0, dtype=torch.float32)
    shift = torch.log2(largest / ratio).floor().clamp_max(float(shift_ceiling))
    power = 2.0**shift
    multiplier = (ratio * power + 0.5).floor()
    if float((multiplier - power).abs().max()) < FLOAT32_EPSILON:
        multiplier, shift = torch.ones_like(multiplier), torch.zeros_like(shift)
    return multiplier.to(torch.int64), shift.to(torch.int64)


def unify_shifts(mantissas: Tensor, shifts: Tensor, limit: int = 32767) -> tuple[Tensor, Tensor]:
    """Bring all channels to one shift, the largest at which the greatest multiplier stays within *limit*.

    Low bits fall off towards zero, as in Compass (unify_shifts_for_aiff): a channel of a very small ratio may end at
    multiplier 0.
    """
    numbers, places = mantissas.flatten().tolist(), shifts.flatten().tolist()
    common = max(0, *places) if places else 0
    grown = [number << (common - place) for number, place in zip(numbers, places, strict=True)]
    excess = 0
    while max(grown, default=0) >> excess > limit:
        excess += 1
    unified = torch.tensor([number >> excess for number in grown], dtype=torch.int64).reshape(mantissas.shape)
    return unified, torch.full_like(unified, common - excess)


def rescale(
    platform: Platform,
    family: str,
    scales: Sequence[Tensor],
    output_scale: float,
    activation_bits: int,
    *,
    steps: Sequence[Tensor] | None = None,
    output_steps: Tensor | float | None = None,
    ratio: RatioArithmetic = "float64",
) -> Rescale:
    """Return the numbers by which *platform* rescales an accumulator of *family* to the output's codes.

    *scales* are multiplied together (float64, 0-d or per channel). *steps* and *output_steps* are Compass's float32
    codes per unit of the same tensors; where absent they are the inverses of the scales. *ratio*: the arithmetic of the
    fixed-point variants. half_away keeps the float64 ratio itself.
    """
    variant = platform.requantize.get(family, platform.requantize["default"])
    if variant == "exact":
        return replace(_unshifted(variant, _product(scales)), divisor=output_scale)
    if variant in ("f32_even", "f32_even_zpin"):
        return _unshifted(variant, _ratio(scales, output_scale, "float32"))
    if variant == "half_away":
        return _unshifted(variant, _ratio(scales, output_scale, ratio))
    if variant == "multiplier_shift":
        mantissa, shift = _compass_numbers(platform, scales, output_scale, activation_bits, steps, output_steps)
        if platform.multiplier.unify_shifts and family not in platform.multiplier.own_shifts and mantissa.dim():
            mantissa, shift = unify_shifts(mantissa, shift)
    else:
        real = _ratio(scales, output_scale, ratio)
        bits = activation_bits if platform.multiplier.bits == "activation" else platform.multiplier.bits
        mantissa, shift = q15(real) if variant == "q15_half_up" else fixed_point(real, bits)
    return Rescale(variant, mantissa.to(torch.float64), shift)


def rescale_left_shifted(variant: Variant, scales: Mapping[str, float], output_scale: float) -> Rescale:
    """Return the numbers of TensorFlow Lite's 8-bit add: a 31-bit factor per input and one for the shifted sum.

    Factors are `scale / (2 * largest scale)`, the multiplier undoes that and LEFT_SHIFT.
    """
    twice = 2.0 * max(scales.values())
    factors = {}
    for name, scale in scales.items():
        mantissa, shift = fixed_point(scale / twice)
        factors[name] = float(mantissa) * 2.0 ** -int(shift)
    mantissa, shift = fixed_point(twice / (output_scale * (1 << LEFT_SHIFT)))
    return Rescale(variant, mantissa.to(torch.float64), shift, factors=factors)


def _ratio(scales: Sequence[Tensor], output_scale: float, arithmetic: RatioArithmetic) -> Tensor:
    """Return the product of *scales* over the output scale as float64, rounded on the way as *arithmetic* does."""
    if arithmetic == "float64":
        return _product(scales) / output_scale
    product = _product([s.to(torch.float32) for s in scales])
    if arithmetic == "float32_product":
        return product.to(torch.float64) / output_scale
    return (product / torch.tensor(output_scale, dtype=torch.float32)).to(torch.float64)


def _unshifted(variant: Variant, mantissa: Tensor) -> Rescale:
    return Rescale(variant, mantissa, torch.zeros_like(mantissa, dtype=torch.int64))


def _compass_numbers(
    platform: Platform,
    scales: Sequence[Tensor],
    output_scale: float,
    activation_bits: int,
    steps: Sequence[Tensor] | None,
    output_steps: Tensor | float | None,
) -> tuple[Tensor, Tensor]:
    """Return the multipliers and shifts of `steps_y / (steps_x * steps_w)`, in float32 throughout."""
    if steps is None:
        steps = [(1.0 / s).to(torch.float32) for s in scales]
    if output_steps is None:
        output_steps = 1.0 / output_scale
    ratio = torch.as_tensor(output_steps, dtype=torch.float32) / _product([s.to(torch.float32) for s in steps])
    rule = platform.multiplier
    bits = activation_bits if rule.bits == "activation" else rule.bits
    return compass(ratio, bits, rule.bits_ceiling, rule.shift_ceiling)


def _product(factors: Sequence[Tensor]) -> Tensor:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def _positive(ratio: Tensor | float, kind: torch.dtype = torch.float64) -> Tensor:
    values = torch.as_tensor(ratio, dtype=kind)
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise GraphError(f"ratio {values.tolist()}: must be positive and finite. Check the scales it is made of.")
    return values
