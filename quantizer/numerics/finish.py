"""From an exact sum to output codes: the accumulator's width, then one requantization."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.numerics.kernels import limit
from quantizer.numerics.qparams import Parameters, Rescale
from quantizer.numerics.requantize import requantize, requantize_sum


def finish(acc: Tensor, parameters: Parameters, *, channel_axis: int | None = None, output: str = "y") -> Tensor:
    """Return the codes of an exact accumulator *acc* (int64), multiplied along *channel_axis* where that is per channel."""
    platform = parameters.platform
    held = limit(acc, parameters.accumulator_bits, platform.accumulator.overflow)
    return requantize(
        held, _rescale(parameters), parameters.outputs[output], channel_axis=channel_axis, rounding=platform.rounding
    )


def finish_sum(terms: Mapping[str, Tensor], parameters: Parameters, *, output: str = "y") -> Tensor:
    """Return the codes of `sum(factor * term)`, terms being centred codes (int64) that broadcast."""
    return requantize_sum(
        terms, _rescale(parameters), parameters.outputs[output],
        inputs=parameters.inputs, rounding=parameters.platform.rounding,
    )  # fmt: skip


def _rescale(parameters: Parameters) -> Rescale:
    if parameters.rescale is None:
        raise GraphError("the quantize rule handed no multiplier; return Parameters with `rescale`.")
    return parameters.rescale
