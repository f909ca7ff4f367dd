"""Layer normalisation: deviations from the mean over trailing axes, over the standard deviation, gamma and beta."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.core.attributes import whole
from quantizer.numerics.normalize import decided, normalize_exactly
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.ops import operator


@operator("layer_norm")
def reference(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, axis: int, epsilon: float
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) over the axes from *axis* on, times gamma, plus beta.

    The variance is that of the elements themselves (over N). In float32 the operations run in this order.
    """
    axes = _axes(x, axis)
    deviation = x - x.mean(dim=axes, keepdim=True)
    variance = (deviation**2).mean(dim=axes, keepdim=True)
    normal = deviation * (1.0 / torch.pow(variance + epsilon, 0.5))
    scaled = normal if gamma is None else gamma * normal
    return scaled if beta is None else scaled + beta


@operator("layer_norm")
def quantize(request: Request) -> Parameters:
    """Provide gamma as a weight and beta as a bias that is added to the product of gamma and the normalised value."""
    return decided(request, _count(request.shapes["x"], whole(request.attrs, "axis")))[0]


@operator("layer_norm")
def quantized(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    parameters: Parameters,
    axis: int,
    epsilon: float,
) -> Staged:
    """Normalise over *axis* and the axes after it, exactly; round half to even."""
    return normalize_exactly(x, gamma, beta, parameters, _count(x.shape, axis), epsilon)


def _axes(x: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(range(axis % x.dim(), x.dim()))


def _count(shape: tuple[int, ...], axis: int) -> int:
    """Return N, the number of elements that are normalised together."""
    return math.prod(shape[axis:])
