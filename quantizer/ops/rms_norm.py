"""Root-mean-square normalization: divides by the root mean square over trailing axes, then scales."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.core.attributes import whole
from quantizer.numerics.normalize import decided, normalize_exactly
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.ops import operator


@operator("rms_norm")
def reference(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, axis: int, epsilon: float
) -> Tensor:
    """Return x / sqrt(mean(x**2) + epsilon) over the axes from *axis* on, times gamma, plus beta.

    In float32 the operations run in this order.
    """
    square = (x**2).mean(dim=_axes(x, axis), keepdim=True)
    normal = x * (1.0 / torch.pow(square + epsilon, 0.5))
    scaled = normal if gamma is None else gamma * normal
    return scaled if beta is None else scaled + beta


@operator("rms_norm")
def quantize(request: Request) -> Parameters:
    """Provide gamma as a weight and beta as a bias that is added to the product of gamma and the normalised value."""
    return decided(request, _count(request.shapes["x"], whole(request.attrs, "axis")))[0]


@operator("rms_norm")
def quantized(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    parameters: Parameters,
    axis: int,
    epsilon: float,
) -> Staged:
    """Normalise the elements of the axes from *axis* on exactly, round half to even."""
    return normalize_exactly(x, gamma, beta, parameters, _count(x.shape, axis), epsilon, mean=False)


def _axes(x: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(range(axis % x.dim(), x.dim()))


def _count(shape: tuple[int, ...], axis: int) -> int:
    """Return N, the number of elements that are normalised together."""
    return math.prod(shape[axis:])
