"""Instance normalisation: deviations from the mean of each channel, divided by their standard deviation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.numerics.normalize import along_channels, decided, normalize_exactly
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.ops import operator


@operator("instance_norm")
def reference(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, epsilon: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) over the places of each channel, scaled and shifted.

    x [n, c, h, w], gamma [c], beta [c]. The variance is that of the elements themselves (over N). Float32 has this
    order of operations.
    """
    deviation = x - x.mean(dim=(2, 3), keepdim=True)
    variance = (deviation**2).mean(dim=(2, 3), keepdim=True)
    normal = deviation * (1.0 / torch.pow(variance + epsilon, 0.5))
    scaled = normal if gamma is None else gamma[:, None, None] * normal
    return scaled if beta is None else scaled + beta[:, None, None]


@operator("instance_norm")
def quantize(request: Request) -> Parameters:
    """Provide gamma as a weight and beta as a bias that is added to the product of gamma and the normalised value."""
    return decided(request, math.prod(request.shapes["x"][2:]))[0]


@operator("instance_norm")
def quantized(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, parameters: Parameters, epsilon: float
) -> Staged:
    """Normalise the places of each channel exactly, round half to even."""
    return normalize_exactly(
        x, along_channels(gamma), along_channels(beta), parameters, math.prod(x.shape[2:]), epsilon
    )
