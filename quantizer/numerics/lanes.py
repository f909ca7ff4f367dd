"""Float32 softmax and log-softmax with sums in sixteen lanes, as torch computes them with AVX-512."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.exponential import exp

LANES = 16


def softmax(x: Tensor, axis: int) -> Tensor:
    """Return float32 softmax of *x* along *axis*.

    Along the last axis the sum is added in lanes and the sum is inverted once; along another axis it is added in order,
    and results are divided by it.
    """
    powers = exp(x - x.amax(dim=axis, keepdim=True))
    if axis % x.dim() == x.dim() - 1:
        return powers * (1.0 / total(powers))
    return powers / in_order(powers, axis)


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """Return float32 `x - max - log(sum)` along *axis*, the logarithm rounded from float64."""
    distances = x - x.amax(dim=axis, keepdim=True)
    powers = exp(distances)
    summed = total(powers) if axis % x.dim() == x.dim() - 1 else in_order(powers, axis)
    return distances - torch.log(summed.double()).float()


def total(values: Tensor) -> Tensor:
    """Return sums along the last axis: 16 partial sums, added pairwise; rows under 16 elements in order."""
    size = values.shape[-1]
    if size < LANES:
        return in_order(values, -1)
    lanes = values[..., :LANES].clone()
    for start in range(LANES, size, LANES):
        part = values[..., start : start + LANES]
        # the last vector may be incomplete; it reaches only the first lanes
        lanes[..., : part.shape[-1]] += part
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def in_order(values: Tensor, axis: int) -> Tensor:
    """Return sums along *axis*, which stays with size 1; elements are added one after the other."""
    found = values.narrow(axis, 0, 1)
    for place in range(1, values.shape[axis]):
        found = found + values.narrow(axis, place, 1)
    return found
