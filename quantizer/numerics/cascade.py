"""Float32 sums in torch's order on x86-64, on every processor: eight lanes, four rows, four levels.

Torch's order follows from the lanes of the vectors that it was compiled for: eight of float32 on x86-64 at any level of
instructions, four on ARM. Source of the order: `SumKernel.cpp` and the loops of `TensorIterator` in torch 2.13.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LANES = 8
ROWS = 4
"""The number of independent partial sums, so that an addition need not wait for the previous one."""
LEVELS = 4
IS_OWN_ORDER = platform.machine().lower() in ("x86_64", "amd64")
"""Whether torch's own sums have this order on this machine."""


@dataclass(frozen=True)
class _Axis:
    size: int
    stride: int
    out: int
    """Stride in the result, in elements; 0: the axis is summed."""


def total(x: Tensor, axes: Sequence[int], *, keepdim: bool = False) -> Tensor:
    """Return the sums of float32 *x* along *axes*; an empty *axes* means all axes."""
    summed = sorted({axis % x.dim() for axis in axes}) if axes else list(range(x.dim()))
    kept = [1 if i in summed else n for i, n in enumerate(x.shape)]
    found = x.new_zeros(kept)
    if x.numel():
        strides = found.stride()
        loops = _loops(
            [_Axis(n, x.stride(i), 0 if i in summed else strides[i]) for i, n in enumerate(x.shape) if n > 1]
        )
        _add(x, found.view(-1), loops)
    return found if keepdim or not x.dim() else found.reshape([n for i, n in enumerate(x.shape) if i not in summed])


def _loops(axes: list[_Axis]) -> list[_Axis]:
    """Return the axes from the innermost loop to the outermost; neighbours are merged where their strides permit.

    Summed axes come first, ordered by their strides; the others follow, ordered by their strides in the result.
    """
    order = sorted(axes, key=lambda axis: (axis.out, axis.stride, axis.size))
    joined: list[_Axis] = []
    for axis in order:
        last = joined[-1] if joined else None
        # the axis continues where the last one ends, in x and in the result: one longer loop covers both
        if last is not None and axis.stride == last.size * last.stride and axis.out == last.size * last.out:
            joined[-1] = _Axis(last.size * axis.size, last.stride, last.out)
        else:
            joined.append(axis)
    # the kernel always runs two loops
    return joined + [_Axis(1, 0, 0)] * (2 - len(joined))


def _add(x: Tensor, found: Tensor, loops: list[_Axis]) -> None:
    """Add the sums of the two innermost *loops* to *found*, once for each step of the outer loops."""
    first, second, *outer = loops
    steps = [(0, 0)]
    for axis in outer:
        steps = [(a + i * axis.stride, b + i * axis.out) for i in range(axis.size) for a, b in steps]
    if first.out:  # nothing is summed
        first, second = _Axis(1, 0, 0), first
        steps = [(a + i * loops[1].stride, b + i * loops[1].out) for i in range(loops[1].size) for a, b in steps]
    for source, target in steps:
        part = x.as_strided((second.size, first.size), (second.stride, first.stride), x.storage_offset() + source)
        into = found.as_strided((second.size,), (second.out,), target)
        made = _rows(part, contiguous=first.stride == 1, across=second.stride == 1, inner=first.stride < second.stride)
        if second.out:
            into += made
        else:
            for value in made:
                found[target] += value


def _rows(part: Tensor, *, contiguous: bool, across: bool, inner: bool) -> Tensor:
    """Return the sum of each row of *part* [rows, size] in one of four orders, which its strides choose."""
    rows, size = part.shape
    if contiguous and size >= LANES:
        whole = size // LANES * LANES
        # the shape becomes lanes, rows, size / lanes
        lanes = _row_sum(part[:, :whole].unflatten(1, (-1, LANES)).movedim(2, 0))
        made = part.new_zeros(rows)
        for place in range(whole, size):
            made = made + part[:, place]
        for lane in lanes:
            made = made + lane
        return made
    if across and rows >= LANES:
        step, whole = ROWS * LANES, rows // LANES * LANES
        many = rows // step * step
        return torch.cat([_cascade(part[:many]), _row_sum(part[many:whole]), _row_sum(part[whole:])])
    if inner:
        return _row_sum(part)
    many = rows // ROWS * ROWS
    return torch.cat([_cascade(part[:many]), _row_sum(part[many:])])


def _row_sum(part: Tensor) -> Tensor:
    """Return sums along the last axis: four interleaved rows, each a cascade. Row 0 takes the remainder."""
    size = part.shape[-1] // ROWS * ROWS
    rows = list(_cascade(part[..., :size].unflatten(-1, (-1, ROWS)).movedim(-1, 0)))
    for place in range(size, part.shape[-1]):
        rows[0] = rows[0] + part[..., place]
    return _one_by_one(rows)


def _cascade(part: Tensor) -> Tensor:
    """Return sums along the last axis in four levels; each full level is added to the next and restarts at 0."""
    size = part.shape[-1]
    # the number of elements that fill a level, at least 16
    power = max(4, math.ceil(math.log2(size)) // LEVELS) if size > 1 else 4
    step = 1 << power
    sums = [part.new_zeros(part.shape[:-1]) for _ in range(LEVELS)]
    done = 0
    while done + step <= size:
        for place in range(done, done + step):
            sums[0] = sums[0] + part[..., place]
        done += step
        for level in range(1, LEVELS):
            sums[level] = sums[level] + sums[level - 1]
            sums[level - 1] = torch.zeros_like(sums[0])
            # the next level is not full yet
            if done & ((step - 1) << (level * power)):
                break
    for place in range(done, size):
        sums[0] = sums[0] + part[..., place]
    return _one_by_one(sums)


def _one_by_one(parts: Sequence[Tensor]) -> Tensor:
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found
