"""What float32 kernels of torch give with AVX-512, on which the recorded runs of Compass were made, on any processor."""

from __future__ import annotations

import torch
from torch import Tensor

LANES = 16
CAPABILITY = "AVX512"


def native() -> bool:
    """Return whether torch's own kernels are those of AVX-512 here."""
    return torch.backends.cpu.get_cpu_capability() == CAPABILITY


def softmax(x: Tensor, axis: int) -> Tensor:
    """Return softmax of float32 *x* along *axis*, its sum added in the order of AVX-512 and inverted once.

    Exponentials are rounded from float64; those of the kernel differ by a unit in the last place in one of twenty
    elements of the recorded runs. Along another axis than the last one sums are added one after the other everywhere.
    """
    if native() or axis % x.dim() != x.dim() - 1:
        return torch.softmax(x, dim=axis)
    powers = torch.exp((x - x.amax(dim=-1, keepdim=True)).double()).float()
    return powers * (1.0 / _sum(powers))


def _sum(values: Tensor) -> Tensor:
    """Return sums along the last axis: 16 lanes that are halved at the end; fewer elements than that one after the other."""
    size = values.shape[-1]
    if size < LANES:
        total = values[..., :1]
        for place in range(1, size):
            total = total + values[..., place : place + 1]
        return total
    lanes = values[..., :LANES].clone()
    for start in range(LANES, size, LANES):
        part = values[..., start : start + LANES]
        lanes[..., : part.shape[-1]] += part
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes
