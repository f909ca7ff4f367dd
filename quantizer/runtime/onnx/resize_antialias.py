"""Antialiased linear resize of integers, as in ONNX Runtime's function for the CPU.

ONNX defines no rounding for it. The rules come from that function, which follows Pillow's, and from comparison with it:
one pass for each axis, the last axis first, and each pass rounds. Codes of 8 bits have weights in units of 2^-22;
integers of 32 bits have float32 weights and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError

UNIT = 22
"""Fractional bits of a weight, for codes of 8 bits."""
ANTIALIASED = (torch.uint8, torch.int32)
"""Types with a right antialiased resize in ONNX Runtime; for int8 it returns 0 for every negative result."""


def antialiased(
    x: Tensor,
    target: Sequence[int],
    scales: Sequence[float],
    axes: Sequence[int],
    place: Callable[[int], Tensor],
    *,
    exclude: bool,
) -> Tensor:
    """Return x resized along *axes*; *place* gives the float32 coordinates of an axis."""
    if x.dtype not in ANTIALIASED:
        raise UnsupportedError(
            f"Resize of {x.dtype} with antialias=1: must be uint8 or int32. The standard defines no rounding, and "
            "ONNX Runtime returns 0 for results below 0."
        )
    # each pass rounds, so that the order of the axes matters
    for axis in reversed(axes):
        if x.shape[axis] != target[axis]:
            x = _along(x, axis, scales[axis], place(axis).numpy(), exclude=exclude)
    return x


def _along(x: Tensor, axis: int, scale: float, places: np.ndarray, *, exclude: bool) -> Tensor:
    if not len(places):
        return x.narrow(axis, 0, 0)
    rows = x.movedim(axis, -1)
    made = [_point(rows, place, np.float32(1) / np.float32(scale), exclude=exclude) for place in places]
    return torch.stack(made, -1).movedim(-1, axis)


def _point(rows: Tensor, place: np.float32, step: np.float32, *, exclude: bool) -> Tensor:
    """Return the result at one coordinate, from its neighbours within a step, or within 1 if the axis is enlarged."""
    first, weights = _weights(rows.shape[-1], place, step, exclude=exclude)
    near = rows[..., first : first + len(weights)]
    if rows.dtype == torch.uint8:
        whole = torch.from_numpy(np.trunc(weights * np.float32(1 << UNIT) + np.float32(0.5)).astype(np.int64))
        # half of a unit is added: rounded half up
        return (((near.long() * whole).sum(-1) + (1 << (UNIT - 1))) >> UNIT).clamp(0, 255).to(torch.uint8)
    total = torch.zeros(rows.shape[:-1])
    for k, weight in enumerate(weights):
        total = total + near[..., k].float() * float(weight)
    # half away from zero, in float64, so that adding 0.5 does not round
    return torch.trunc(total.double() + torch.copysign(torch.tensor(0.5, dtype=torch.float64), total.double())).int()


def _weights(size: int, place: np.float32, step: np.float32, *, exclude: bool) -> tuple[int, np.ndarray]:
    """Return the first neighbour inside, and the float32 weights of all inside; those outside are added at the edge."""
    half, reach = np.float32(0.5), max(step, np.float32(1))
    centre = half + place
    first, end = (math.floor(centre + side * reach + half) for side in (-1, 1))
    inside = range(max(first, 0), min(end, size))
    taken = inside if exclude else range(first, end)
    found = np.zeros(max(len(inside), 1), np.float32)
    total = np.float32(0)
    for k in taken:
        distance = abs(float((np.float32(k) - centre + half) * (np.float32(1) / reach)))
        weight = np.float32(max(0.0, 1 - distance))
        total += weight
        # weights outside fall on the edge elements
        found[min(max(k - inside.start, 0), len(found) - 1)] += weight
    return inside.start, found * (np.float32(1) / total if total else np.float32(1))
