"""From an exact sum to output codes: overflow of the accumulator, then one requantization."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.numerics import float32_stages
from quantizer.numerics.blocks import finish_blocks
from quantizer.numerics.fused_activations import requantize_activated
from quantizer.numerics.kernels import limit
from quantizer.numerics.overflow import CONVERTED, as_x86, beyond_int32
from quantizer.numerics.qparams import Parameters, Rescale
from quantizer.numerics.quotient import divide_exactly
from quantizer.numerics.ratio_to_multiplier import float32_multiplier, reciprocal
from quantizer.numerics.raw_means import averaged, mean_in_vectors, reduced_in_float32
from quantizer.numerics.requantize import requantize, requantize_sum, round_fixed_point, weighted_sum
from quantizer.numerics.rounding import round_tensor

AREA_BITS = 8
"""The number of bits of the multiplier of 1 / area."""


def requantize_accumulator(
    acc: Tensor, parameters: Parameters, *, channel_axis: int | None = None, output: str = "y"
) -> Tensor:
    """Return the codes of an exact accumulator *acc* (int64).

    *channel_axis*: the axis of per-channel multipliers, if it differs from the provided parameters'. For weights in
    blocks, *acc* has one more axis, with a sum for each block (`numerics.blocks`).
    """
    platform, rescale = parameters.platform, _rescale(parameters)
    # only weights in blocks have multipliers along two axes
    if rescale.mantissa.dim() > 1:
        return finish_blocks(acc, parameters, rescale, parameters.outputs[output], platform.rounding)
    held = limit(acc, parameters.accumulator_bits, platform.accumulator.overflow)
    # the kernel of this activation reads the sum as float32
    if parameters.activation in platform.accumulator.float32_before:
        held = held.float()
    axis = rescale.axis if channel_axis is None else channel_axis
    if parameters.fused is not None:
        return requantize_activated(
            held, parameters.fused, rescale, parameters.outputs[output], platform.rounding, axis
        )
    if rescale.variant in float32_stages.FLOAT_SUMS:
        return float32_stages.requantize_with_real_bias(held, parameters, rescale, parameters.outputs[output], axis)
    if platform.multiplier.overflow == "x86":
        held, rescale = as_x86(held, rescale, axis)
    codes = requantize(
        held,
        rescale,
        parameters.outputs[output],
        channel_axis=axis,
        rounding=platform.rounding,
        first=platform.first_rounding,
    )
    if platform.multiplier.overflow == "x86" and rescale.variant in CONVERTED:
        return beyond_int32(codes, held, rescale, parameters.outputs[output], axis)
    return codes


def requantize_terms(
    terms: Mapping[str, Tensor], parameters: Parameters, *, output: str = "y", minus: Collection[str] = ()
) -> Tensor:
    """Return the codes of `sum(factor * term)`.

    Terms are centred codes (int64) that broadcast, *minus* are subtracted.
    """
    rescale = _rescale(parameters)
    if rescale.variant in float32_stages.TERMS:
        return float32_stages.requantize_float32_terms(terms, parameters, rescale, parameters.outputs[output])
    # a single operand is shifted left as an accumulator is, and overflows alike
    if (
        rescale.variant == "q31_double"
        and parameters.platform.multiplier.overflow == "x86"
        and len(rescale.factors) == len(terms) == 1
    ):
        return requantize_accumulator(next(iter(terms.values())), parameters, output=output)
    if parameters.fused is not None:
        total = weighted_sum(terms, rescale, minus)
        return requantize_activated(
            total, parameters.fused, rescale, parameters.outputs[output], parameters.platform.rounding, None
        )
    return requantize_sum(
        terms,
        rescale,
        parameters.outputs[output],
        inputs=parameters.inputs,
        rounding=parameters.platform.rounding,
        float32=parameters.activation in parameters.platform.accumulator.float32_before,
        minus=minus,
        places=parameters.platform.multiplier.places(
            max((p.dtype.bits for p in parameters.inputs.values()), default=8)
        ),
        first=parameters.platform.first_rounding,
    )


def requantize_each_term(terms: Mapping[str, Tensor], parameters: Parameters) -> dict[str, Tensor]:
    """Return for each of *terms* (centred codes, int64) the codes of `factor * term`."""
    return {name: requantize_terms({name: term}, parameters) for name, term in terms.items()}


def requantize_mean(sums: Tensor, counts: Tensor | int, parameters: Parameters) -> Tensor:
    """Return the codes of *sums* of centred codes (int64), each divided by its number of terms in *counts* (broadcast).

    * exact: one rounding of the rational number.
    * f32_dequantized: the sum of dequantized float32 values, divided by the count, then by the scale.
    * area_multiplier: a multiplier of 8 bits stands for 1 / count.
    * area_reciprocal: a multiplier of 31 bits stands for 1 / count, rounded half up; input and output have one scale.
    * Other variants have the count in their multiplier.
    """
    rescale, out, mode = _rescale(parameters), parameters.outputs["y"], parameters.platform.rounding
    counts = torch.as_tensor(counts, dtype=torch.int64).expand(sums.shape)
    if rescale.variant in float32_stages.MEANS:
        return float32_stages.requantize_float32_mean(sums, counts, rescale, out, parameters.platform)
    match rescale.variant:
        case "exact":
            (factor,) = rescale.factors.values()
            codes = divide_exactly(sums, counts, Fraction(factor) / Fraction(rescale.divisor), mode) + out.zero_point
            return codes.clamp(out.qmin, out.qmax)
        case "mean_of_codes_half_away":
            (x,) = parameters.inputs.values()
            return averaged(sums, counts, x, out)
        case "q31_mean_in_16_lanes":
            (x,) = parameters.inputs.values()
            return mean_in_vectors(sums, int(counts.max()), x, out, -1 if rescale.axis is None else rescale.axis)
        case "f32_even_zpin":  # as one product: a sum would fold zero points in
            (factor,) = rescale.factors.values()
            return requantize(sums, replace(rescale, mantissa=torch.tensor(factor, dtype=torch.float64)), out)
        case "f32_mean_of_codes_half_even":
            return requantize_reduction(sums, int(counts.max()), parameters)
        case "q31_folded":
            held, numbers = as_x86(sums, replace(rescale, variant="q31_double"), None)
            return requantize(held, numbers, out)
        case "area_multiplier":
            mantissa, shift = float32_multiplier((1.0 / counts).float(), AREA_BITS)
            # a sum below 2**45 times 8 bits is exact in float64, and so is scaling by a power of two
            scaled = (sums.double() * mantissa) * torch.exp2(-shift.double())
            return (round_tensor(scaled, mode).long() + out.zero_point).clamp(out.qmin, out.qmax)
        case "area_reciprocal":
            mantissa, shift = reciprocal(counts)
            rounded = round_fixed_point(sums, mantissa, shift, "q31_single")
            return rounded.add_(out.zero_point).clamp_(out.qmin, out.qmax)
        case _:
            ((name, _),) = parameters.inputs.items()
            return requantize_terms({name: sums}, parameters)


def requantize_reduction(sums: Tensor, count: int, parameters: Parameters, *, output: str = "y") -> Tensor:
    """Return the codes of *sums* of *count* centred codes: by the variant's rule for raw codes, or as any sum."""
    rescale, out = _rescale(parameters), parameters.outputs[output]
    ((name, x),) = parameters.inputs.items()
    if rescale.variant not in ("f32_mean_of_codes_half_even", "f32_mean_of_codes_half_away"):
        return requantize_terms({name: sums}, parameters, output=output)
    factor = rescale.factors[name]
    return reduced_in_float32(sums, count, factor, x, out, even=rescale.variant == "f32_mean_of_codes_half_even")


def _rescale(parameters: Parameters) -> Rescale:
    if parameters.rescale is None:
        raise GraphError("the quantize rule provided no multiplier; return Parameters with `rescale`.")
    return parameters.rescale
