"""Group normalisation: deviations from the mean of each group of channels, divided by their standard deviation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.core.attributes import whole
from quantizer.numerics.normalize import along_channels, decided, normalize_exactly
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.ops import operator


@operator("group_norm")
def reference(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, num_groups: int, epsilon: float
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) over each group of channels of x [n, c, h, w], scaled and shifted.

    The variance is that of the elements themselves (over N). In float32 the operations run in this order.
    """
    parts = []
    for part in x.split(x.shape[1] // num_groups, dim=1):
        deviation = part - part.mean(dim=(1, 2, 3), keepdim=True)
        variance = part.var(dim=(1, 2, 3), keepdim=True, unbiased=False)
        parts.append(deviation * (1.0 / torch.pow(variance + epsilon, 0.5)))
    normal = torch.cat(parts, dim=1)
    scaled = normal if gamma is None else gamma[:, None, None] * normal
    return scaled if beta is None else scaled + beta[:, None, None]


@operator("group_norm")
def quantize(request: Request) -> Parameters:
    """Provide gamma as a weight and beta as a bias that is added to the product of gamma and the normalised value."""
    return decided(request, math.prod(request.shapes["x"][1:]) // _groups(request))[0]


@operator("group_norm")
def quantized(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    parameters: Parameters,
    num_groups: int,
    epsilon: float,
) -> Staged:
    """Normalise each group of channels exactly, round half to even."""
    return normalize_exactly(
        x, along_channels(gamma), along_channels(beta), parameters, math.prod(x.shape[1:]) // num_groups, epsilon
    )


def _groups(request: Request) -> int:
    return whole(request.attrs, "num_groups")
