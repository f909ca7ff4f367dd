"""How a positive real ratio becomes the numbers that an integer forward multiplies and shifts by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.platform_settings import NARROW_BITS
from quantizer.core.platforms import Platform
from quantizer.core.variants import RatioArithmetic, Variant
from quantizer.numerics.qparams import Rescale
from quantizer.numerics.rounding import round_tensor

FLOAT32_EPSILON = 1.1920929e-07  # 2**-23 to eight digits
WHOLE = 2.0**23
"""float32 numbers from here on are whole. A half that is added to an odd one is rounded up to the next even one."""
Q15_BITS = 15
LARGEST_SHIFT = 62
"""The largest right shift after which an int64 product can still be rounded."""


def fixed_point(ratio: Tensor | float, bits: int = 31, *, clamped: bool = True) -> tuple[Tensor, Tensor]:
    """Return int64 (mantissa, shift) with `ratio ~ mantissa * 2**-shift`, the mantissa in [2**(bits-1), 2**bits).

    QuantizeMultiplier: the fraction of frexp, rounded half away; a ratio below 2**-32 becomes (0, bits). With
    *clamped*, a ratio of 2**30 or more becomes the largest mantissa with a left shift of 30. GraphError if the ratio is
    not positive and finite.
    """
    ratio = _positive(ratio)
    fraction, exponent = torch.frexp(ratio)
    exponent = exponent.to(torch.int64)
    mantissa = round_tensor(fraction * 2.0**bits, "half_away").to(torch.int64)
    # a fraction just below 1 rounds up to 2**bits
    carry = mantissa == 1 << bits
    mantissa = torch.where(carry, mantissa >> 1, mantissa)
    exponent = exponent + carry.to(torch.int64)
    # without a clamp the limit is beyond every float64 exponent
    vanishes, overflows = exponent < -31, exponent > (30 if clamped else 1 << 30)
    mantissa = torch.where(vanishes, 0, torch.where(overflows, (1 << bits) - 1, mantissa))
    exponent = torch.where(vanishes, 0, torch.where(overflows, 30, exponent))
    return mantissa, bits - exponent


def q15(ratio: Tensor | float, *, clamped: bool = True) -> tuple[Tensor, Tensor]:
    """Return the 31-bit multiplier rounded half-up to 15 bits and saturated, for accumulators of 64 bits.

    With *clamped*, the multiplier of a ratio of 2**14 or more is padded with zeros after its 15 bits, so that its right
    shift stays 1.
    """
    mantissa, shift = fixed_point(ratio, clamped=clamped)
    # a mantissa from here on would round to 2**15, so it saturates
    reduced = torch.where(mantissa < 0x7FFF0000, (mantissa + (1 << 15)) >> 16, 0x7FFF)
    shift = shift - 16
    if not clamped:
        return reduced, shift
    return reduced << (1 - shift).clamp_min(0), shift.clamp_min(1)


def right_shifted(ratio: Tensor | float, bits: int = 31, largest: int = LARGEST_SHIFT) -> tuple[Tensor, Tensor]:
    """Return int64 (mantissa, shift): `fixed_point`, but with at most *largest* places to the right.

    If a ratio needs more places, its mantissa keeps fewer bits, down to one. A left shift that the platform's format
    cannot hold is returned unchanged. Source: computeMultiplierAndShift of MLIR.
    """
    fraction, exponent = torch.frexp(_positive(ratio))
    mantissa = round_tensor(fraction * 2.0**bits, "half_away").to(torch.int64)
    carry = (mantissa == 1 << bits).to(torch.int64)
    shift = bits - exponent.to(torch.int64) - carry
    # a small ratio keeps fewer bits, so that its shift stays within the limit
    excess = (shift - largest).clamp(0, 31)
    return mantissa >> carry >> excess, shift.clamp_max(largest)


def reciprocal(count: Tensor) -> tuple[Tensor, Tensor]:
    """Return int64 (mantissa, shift) near 1 / *count*: (2**30 + 1) << k over count, k the bits of count - 1.

    Source: a published rule for average pooling in 32 bits (reciprocal_scale).
    """
    bits = torch.ceil(torch.log2(count.double())).to(torch.int64)
    return ((1 << 30) + 1 << bits) // count, 30 + bits


def fixed(platform: Platform, variant: Variant, ratio: Tensor | float, activation_bits: int) -> tuple[Tensor, Tensor]:
    """Return the (mantissa, shift) that *platform* provides its fixed-point *variant* for a ratio."""
    bits = Q15_BITS if variant == "q15_single" else platform.multiplier.width(activation_bits)
    if (shifts := platform.multiplier.shifts) is not None:
        return right_shifted(ratio, bits, shifts[1])
    return fixed_point(ratio, bits, clamped=platform.multiplier.overflow == "exact")


def float32_multiplier(
    ratio: Tensor, bits: int, max_bits: int = 15, max_shift: int = 31, *, positive: bool = False
) -> tuple[Tensor, Tensor]:
    """Return int64 (multiplier, shift) of a float32 ratio, computed in float32.

    The shift is the largest one, up to the ceiling, that keeps the multiplier in its bits; it may be negative. With
    *positive*, a negative shift becomes 0 and its multiplier the largest. The logarithm is rounded from float64, so
    that a multiplier of more than 18 bits may at first have one bit too many. If all channels are 1 within the bits of
    their multipliers, the pair is (1, 0).
    """
    ratio = _positive(ratio, torch.float32)
    largest = torch.tensor(2.0 ** min(bits, max_bits) - 1.0, dtype=torch.float32)
    shift = torch.log2((largest / ratio).double()).float().floor().clamp_max(float(max_shift))
    # one place less where the rounded multiplier does not fit
    shift = shift - (_rounded(ratio * torch.exp2(shift.double()).float()) > largest).float()
    power = torch.exp2(shift.double()).float()
    multiplier = _rounded(ratio * power)
    if positive:
        multiplier = torch.where(shift < 0, largest, multiplier)
        shift = shift.clamp_min(0.0)
        power = 2.0**shift
    # every multiplier is 2**shift, so every ratio is 1 within half a unit of the multiplier
    if float((multiplier - power).abs().max()) < FLOAT32_EPSILON:
        multiplier, shift = torch.ones_like(multiplier), torch.zeros_like(shift)
    return multiplier.to(torch.int64), shift.to(torch.int64)


def _rounded(number: Tensor) -> Tensor:
    """Return float32 numbers rounded half up in float32."""
    # from this limit on numbers are whole already, and an added half would change the odd ones
    return (number + 0.5).floor().where(number < WHOLE, number)


def unify_shifts(mantissas: Tensor, shifts: Tensor, limit: int = 32767) -> tuple[Tensor, Tensor]:
    """Bring all channels to one shift, the largest at which the greatest multiplier stays within *limit*.

    Multipliers are truncated towards zero (unify_shifts_for_aiff), so that a channel with a very small ratio may get
    the multiplier 0.
    """
    numbers, places = mantissas.flatten().tolist(), shifts.flatten().tolist()
    common = max(0, *places) if places else 0
    grown = [number << (common - place) for number, place in zip(numbers, places, strict=True)]
    excess = 0
    # all multipliers lose the same number of low bits, until the greatest fits
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
    variant: Variant | None = None,
) -> Rescale:
    """Return the numbers by which *platform* rescales an accumulator of *family* to the output's codes.

    *scales* are multiplied together (float64, 0-d or per channel). *steps* and *output_steps* are float32 codes per
    unit of the same tensors; where absent they are the inverses of the scales. *ratio*: the arithmetic of the
    fixed-point variants. half_away keeps the float64 ratio itself. *variant*: the requantization of the case; the
    default is the family's.
    """
    variant = variant or platform.requantize.get(family, platform.requantize["default"])
    if variant == "exact":
        return replace(_unshifted(variant, _product(scales)), divisor=output_scale)
    if variant in ("f32_even", "f32_even_zpin"):
        return _unshifted(variant, ratio_of_scales(scales, output_scale, "float32"))
    if variant == "f32_even_bias":
        return _unshifted(variant, ratio_of_scales(scales, output_scale, "float32"))
    if variant == "f32_even_inverse":
        return _unshifted(variant, _over_inverse(scales, output_scale))
    if variant == "f32_stages_bias":
        return _stages(variant, scales, output_scale)
    if variant in ("f32_products", "f32_scaling"):
        return _unshifted(variant, scales[0] / output_scale)
    if variant == "half_away":
        return _unshifted(
            variant, ratio_of_scales(scales, output_scale, "float64" if ratio == "float32_product_of_one" else ratio)
        )
    if variant == "multiplier_shift":
        mantissa, shift = _float32_numbers(platform, scales, output_scale, activation_bits, steps, output_steps)
        if platform.multiplier.unify_shifts and family not in platform.multiplier.own_shifts and mantissa.dim():
            mantissa, shift = unify_shifts(mantissa, shift)
    else:
        real = ratio_of_scales(scales, output_scale, ratio)
        mantissa, shift = (
            q15(real, clamped=platform.multiplier.overflow == "exact")
            if variant == "q15_half_up"
            else fixed(platform, variant, real, activation_bits)
        )
    return Rescale(variant, mantissa.to(torch.float64), shift)


def rescale_left_shifted(variant: Variant, scales: Mapping[str, float], output_scale: float, places: int) -> Rescale:
    """Return the numbers of a sum of q31_double: a 31-bit factor per input and one for the sum, shifted by *places*.

    Factors are `scale / (2 * largest scale)`, the multiplier undoes that and the shift.
    """
    # twice, so that a factor is at most 1/2 and two rescaled operands add up without overflow
    twice = 2.0 * max(scales.values())
    factors = {}
    for name, scale in scales.items():
        mantissa, shift = fixed_point(scale / twice)
        factors[name] = float(mantissa) * 2.0 ** -int(shift)
    mantissa, shift = fixed_point(twice / (output_scale * (1 << places)))
    return Rescale(variant, mantissa.to(torch.float64), shift, factors=factors)


def rescale_widened(
    platform: Platform, variant: Variant, scales: Mapping[str, float], output_scale: float, activation_bits: int
) -> Rescale:
    """Return the numbers for a sum of widened operands: a factor for each input, and the multiplier of the sum.

    Factors are `2**n * scale / (2 * largest scale)`, n the bits by which the platform widens; each operand is rounded
    once (half up) when it is rescaled. The multiplier undoes that.
    """
    rule = platform.multiplier
    shift = rule.sum_shift if activation_bits <= NARROW_BITS else rule.wide_sum_shift
    twice, wide = 2.0 * max(scales.values()), float(1 << (shift or 0))
    most = LARGEST_SHIFT if rule.shifts is None else rule.shifts[1]
    factors = {name: whole(*right_shifted(wide * scale / twice, largest=most)) for name, scale in scales.items()}
    mantissa, places = fixed(platform, variant, twice / (output_scale * wide), activation_bits)
    return Rescale(variant, mantissa.to(torch.float64), places, factors=factors, operands="q31_single")


def whole(mantissa: Tensor, shift: Tensor) -> float:
    """Return `mantissa * 2**-shift` of one multiplier of at most 31 bits, which float64 holds exactly."""
    return float(mantissa) * 2.0 ** -int(shift)


def ratio_of_scales(scales: Sequence[Tensor], output_scale: float, arithmetic: RatioArithmetic) -> Tensor:
    """Return the product of *scales* over the output scale as float64, rounded on the way as *arithmetic* does."""
    if arithmetic == "float64" or (arithmetic == "float32_product_of_one" and any(s.numel() > 1 for s in scales)):
        return _product(scales) / output_scale
    product = _product([s.to(torch.float32) for s in scales])
    if arithmetic != "float32":
        return product.to(torch.float64) / output_scale
    return (product / torch.tensor(output_scale, dtype=torch.float32)).to(torch.float64)


def _over_inverse(scales: Sequence[Tensor], output_scale: float) -> Tensor:
    """Return the float32 product of *scales* times the float32 inverse of the output scale."""
    product = _product([s.to(torch.float32) for s in scales])
    return (product * (1.0 / torch.tensor(output_scale, dtype=torch.float32))).to(torch.float64)


def _stages(variant: Variant, scales: Sequence[Tensor], output_scale: float) -> Rescale:
    """Return the factors of f32_stages_bias, one for each float32 rounding.

    They are 1 / (1 / input scale), the weights' scales, and the output's scale.
    """
    first, second = (s.to(torch.float32) for s in scales)
    # the kernel inverts the inverse of the scale; both steps round, so the result may differ from the scale
    again = 1.0 / (1.0 / first)
    return replace(_unshifted(variant, second.double()), divisor=output_scale, factors={"x": float(again)})


def _unshifted(variant: Variant, mantissa: Tensor) -> Rescale:
    return Rescale(variant, mantissa, torch.zeros_like(mantissa, dtype=torch.int64))


def _float32_numbers(
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
    return float32_multiplier(
        ratio, rule.width(activation_bits), rule.max_bits, rule.max_shift, positive=rule.positive_shifts
    )


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
