"""From an exact sum to output codes: the accumulator's width, then one requantization."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.numerics.kernels import limit
from quantizer.numerics.multipliers import compass
from quantizer.numerics.qparams import Parameters, Rescale
from quantizer.numerics.quotient import divide_exactly
from quantizer.numerics.requantize import requantize, requantize_sum
from quantizer.numerics.rounding import round_tensor

AREA_BITS = 8
"""Bits of the multiplier that Compass's average pooling makes of 1 / area."""
RELAY_BITS = 8
"""Bits that Compass's clamping keeps behind the code between its two roundings; none for outputs of more bits."""


def finish(acc: Tensor, parameters: Parameters, *, channel_axis: int | None = None, output: str = "y") -> Tensor:
    """Return the codes of an exact accumulator *acc* (int64).

    *channel_axis*: where multipliers per channel lie, if not where the handed ones say.
    """
    platform, rescale = parameters.platform, _rescale(parameters)
    held = limit(acc, parameters.accumulator_bits, platform.accumulator.overflow)
    if parameters.activation in platform.accumulator.float32_before:
        held = held.float()
    axis = rescale.axis if channel_axis is None else channel_axis
    return requantize(held, rescale, parameters.outputs[output], channel_axis=axis, rounding=platform.rounding)


def finish_sum(terms: Mapping[str, Tensor], parameters: Parameters, *, output: str = "y") -> Tensor:
    """Return the codes of `sum(factor * term)`, terms being centred codes (int64) that broadcast."""
    return requantize_sum(
        terms, _rescale(parameters), parameters.outputs[output],
        inputs=parameters.inputs, rounding=parameters.platform.rounding,
        float32=parameters.activation in parameters.platform.accumulator.float32_before,
    )  # fmt: skip


def finish_each(terms: Mapping[str, Tensor], parameters: Parameters, *, output: str = "y") -> dict[str, Tensor]:
    """Return for each of *terms* (centred codes, int64) the codes of `factor * term`."""
    return {name: finish_sum({name: term}, parameters, output=output) for name, term in terms.items()}


def finish_mean(sums: Tensor, counts: Tensor | int, parameters: Parameters, *, output: str = "y") -> Tensor:
    """Return the codes of *sums* of centred codes (int64) divided by *counts* of terms (that broadcast).

    exact: one rounding of the rational. f32_dequantized: ONNX Runtime's average pooling, the sum of dequantized float32
    values divided by the count, then by the scale. area_multiplier: Compass's pooling, a multiplier of 8 bits for 1/count.
    Other variants have the count in their multiplier.
    """
    rescale, out, mode = _rescale(parameters), parameters.outputs[output], parameters.platform.rounding
    counts = torch.as_tensor(counts, dtype=torch.int64).expand(sums.shape)
    match rescale.variant:
        case "exact":
            (factor,) = rescale.factors.values()
            codes = divide_exactly(sums, counts, Fraction(factor) / Fraction(rescale.divisor), mode) + out.zero_point
            return codes.clamp(out.qmin, out.qmax)
        case "area_multiplier":
            mantissa, shift = compass((1.0 / counts).float(), AREA_BITS)
            scaled = (sums.double() * mantissa) * torch.exp2(-shift.double())
            return (round_tensor(scaled, mode).long() + out.zero_point).clamp(out.qmin, out.qmax)
        case _:
            ((name, _),) = parameters.inputs.items()
            return finish_sum({name: sums}, parameters, output=output)


def _rescale(parameters: Parameters) -> Rescale:
    if parameters.rescale is None:
        raise GraphError("the quantize rule handed no multiplier; return Parameters with `rescale`.")
    return parameters.rescale
