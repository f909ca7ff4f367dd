"""Biases that the platform stores together with the input zero point's share of the sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.trials.trial import Trial
from quantizer.plugins.layer_parameters import ABSORBED

Array = NDArray[Any]
HALF_ULP = 2.0**-24
"""The largest relative error of one float32 rounding."""
WHOLE = 2.0**24
"""Float32 represents each integer up to this magnitude."""


def is_held(trial: Trial, name: str) -> bool:
    """Return whether input *name* is a bias that is stored with the zero point's share, unless a plugin omits it."""
    absorbs = trial.spec.quantization.family in trial.target.platform.absorbs_zero_point
    return trial.spec.inputs[name].role == "bias" and absorbs and bool(trial.parameters.extra.get(ABSORBED, True))


def zero_point_share(trial: Trial, weight: str, channels: int) -> Array | None:
    """Return the zero point's share of each channel's sum: -zero point * sum of the weight's codes.

    Shape [channels], integers. None if nothing is provided for the weight.
    """
    provided, (x, *_) = trial.parameters.constants.get(weight), trial.parameters.inputs.values()
    if provided is None:
        return None
    codes = provided.codes.numpy()
    # channels of a grouped transposed convolution repeat the weights' first axis
    return np.asarray(-int(x.zero_point) * np.resize(codes.reshape(len(codes), -1).sum(1), channels))


def effective_bits(trial: Trial, bits: int) -> int:
    """Return how many of a stored bias's *bits* the platform keeps."""
    return trial.target.platform.bias_effective_bits.get(trial.spec.quantization.family, bits)


def held_radius(trial: Trial, name: str) -> Array:
    """Return how much further a held bias can lie from its float than its own code would, in real units.

    The sum of bias and share saturates. So the bias that remains lies within the code range less the share. Where
    the sum passes 2**24, float32 rounds the bias, the share and their sum. Bits that the platform drops lose less
    than one unit of the lowest bit that it keeps.
    """
    params, values = trial.qparams(name), trial.doubles[name].numpy()
    weight = next(key for key, item in trial.spec.inputs.items() if item.role == "weight")
    share = zero_point_share(trial, weight, values.size)
    if share is None or not values.size:
        return np.zeros(values.shape)
    scale = np.broadcast_to(params.scale.numpy(), values.shape)
    real = values / scale
    beyond = np.maximum(np.maximum(params.qmin - share - real, real - (params.qmax - share)), 0.0)
    held = np.abs(real) + np.abs(share) + 1.0
    lost = np.where(held > WHOLE, HALF_ULP * (held + np.abs(share)), 0.0)
    kept = 2.0 ** (effective_bits(trial, params.dtype.bits) - 1) - 1
    largest = min(float(held.max()), float(params.qmax))
    dropped = 2.0 * largest / kept if largest > kept else 0.0
    return np.asarray(scale * (beyond + lost + dropped))
