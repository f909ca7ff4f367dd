"""Constants of a quantized file that a platform's function can use: biases in the unit of the sums."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Constant, QParams
from quantizer.numerics.quantize import dequantize


def usable_constants(
    spec: Spec, operands: Mapping[str, str], constants: Mapping[str, Constant], inputs: Mapping[str, QParams]
) -> dict[str, Constant]:
    """Return the file's weights, and its biases whose codes are in the unit of the sums.

    UnsupportedError for a bias in another unit that cannot be quantized again.
    """
    weights = {key: c for key, c in constants.items() if spec.inputs[key].role == "weight"}
    for key, constant in constants.items():
        if spec.inputs[key].role == "bias" and not _is_in_unit(constant, inputs, weights):
            _check_unit(operands[key], constant, inputs, weights)
    return {key: c for key, c in constants.items() if key in weights or _is_in_unit(c, inputs, weights)}


def _is_in_unit(bias: Constant, inputs: Mapping[str, QParams], weights: Mapping[str, Constant]) -> bool:
    """Return whether a bias has the scale of its sums, compared in float32."""
    # files hold the product rounded to float32, so that float64 would find a difference
    scale = _unit(inputs, weights, bias.codes.numel()).float()
    return bool((scale == bias.params.scale.float()).all()) and not bool(bias.params.zero_point.any())


def _check_unit(name: str, bias: Constant, inputs: Mapping[str, QParams], weights: Mapping[str, Constant]) -> None:
    """Raise UnsupportedError if a quantized bias has values that are not multiples of the sums' step.

    A float bias is rounded to these steps, as the platform quantizes it; the values of a quantized one are fixed.
    """
    steps = dequantize(bias.codes, bias.params) / _unit(inputs, weights, bias.codes.numel())
    if not torch.equal(steps, steps.round()):
        raise UnsupportedError(
            f"{name!r} is a bias at scale {float(bias.params.scale.reshape(-1)[0]):.9g}: its values must be multiples "
            f"of {float(_unit(inputs, weights, 1).reshape(-1)[0]):.9g}, the product of the scales of input and weight. "
            "Give it this scale"
        )


def _unit(inputs: Mapping[str, QParams], weights: Mapping[str, Constant], count: int) -> torch.Tensor:
    """Return the scale of the sums, or one for each of *count* channels."""
    # groups share weight scales: they are repeated for each channel
    factors = [*inputs.values(), *(c.params.repeated(count) for c in weights.values())]
    scale = factors[0].scale
    for other in factors[1:]:
        scale = scale * other.scale
    return scale


def saturates(bias: Constant, values: torch.Tensor) -> bool:
    """Return whether codes of a bias are more than one step away from the values that they represent."""
    # rounding moves a value by half a step at most: more than a step means that a code was clamped
    step = bias.params.along(bias.params.scale, bias.codes.dim())
    return bool(((dequantize(bias.codes, bias.params) - values).abs() > step).any())
