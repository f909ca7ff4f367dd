"""Parts of tensors: slices and splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import Ours, axis_of, kernel, mapped, whole
from quantizer.runtime.onnx.layout import is_plain, moves


@kernel("Split")
@moves
def split(
    x: Tensor,
    given: Tensor | None = None,
    *,
    axis: int,
    split: Sequence[int] | None = None,
    num_outputs: int | None = None,
    made: int,
) -> list[Tensor]:
    """Split along an axis into parts of given or of equal size; from version 18 on the last part may be smaller."""
    along = axis_of("Split", axis, x.dim())
    return list(torch.split(x, split_sizes(x.shape[along], given, split, num_outputs, made), dim=along))


def split_sizes(
    total: int, given: Tensor | None, split: Sequence[int] | None, num_outputs: int | None, made: int
) -> list[int]:
    """Return the sizes of the parts."""
    sizes = whole(given) if given is not None else list(split or ())
    if not sizes:
        count = made if num_outputs is None else num_outputs
        if count != made:
            raise UnsupportedError(f"Split: num_outputs={count}: must be {made}, the outputs of the node.")
        if total % count and num_outputs is None:
            raise UnsupportedError(f"Split of {total} into {count} parts: must be a multiple, or name the sizes.")
        part = -(-total // count)
        sizes = [min(part, max(0, total - part * i)) for i in range(count)]
    if sum(sizes) != total or min(sizes) < 0 or len(sizes) != made:
        raise UnsupportedError(f"Split of {total} into {sizes}: must add up to it, for {made} outputs.")
    return sizes


def sliced(
    x: Tensor,
    first: Tensor | None = None,
    last: Tensor | None = None,
    along: Tensor | None = None,
    by: Tensor | None = None,
    *,
    starts: Sequence[int] = (),
    ends: Sequence[int] = (),
    axes: Sequence[int] | None = None,
) -> list[range]:
    """Return the indices that are taken along each axis; bounds outside are moved to the edge."""
    begin = whole(first) if first is not None else list(starts)
    stop = whole(last) if last is not None else list(ends)
    where = whole(along) if along is not None else list(range(len(begin)) if axes is None else axes)
    steps = whole(by) if by is not None else [1] * len(begin)
    if not len(begin) == len(stop) == len(where) == len(steps):
        raise UnsupportedError("Slice: starts, ends, axes and steps must have equal lengths.")
    taken = [range(size) for size in x.shape]
    for axis, start, end, step in zip(where, begin, stop, steps, strict=True):
        if step == 0:
            raise UnsupportedError("Slice: a step is 0: must not be.")
        along_axis = axis_of("Slice", axis, x.dim())
        taken[along_axis] = _taken(x.shape[along_axis], start, end, step)
    return taken


def _taken(size: int, start: int, end: int, step: int) -> range:
    """Return the indices that start, end and step select of *size*; with negative steps, a start before 0 is 0.

    Source: the ONNX operator Slice, whose bounds with negative steps are not numpy's.
    """
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    begin, stop = (value + size if value < 0 else value for value in (start, end))
    # for negative steps the stop -1 means "through element 0"
    return range(min(max(begin, 0), highest), min(max(stop, lowest), highest), step)


@mapped("Slice")
def slice_(x: Tensor, *operands: Tensor | None, **attrs: Any) -> Ours | None:
    """Map to the registry's slice, along all axes; an end before the first element lies outside the axis."""
    taken = sliced(x, *operands, **attrs)
    if not is_plain(x) or not all(taken):
        return None
    ends = tuple(r.stop if r.stop >= 0 else -size - 1 for r, size in zip(taken, x.shape, strict=True))
    begin, strides = tuple(r.start for r in taken), tuple(r.step for r in taken)
    return Ours("slice", {"x": x}, {"begin": begin, "end": ends, "strides": strides})


@kernel("Slice")
@moves
def slice_any(x: Tensor, *operands: Tensor | None, **attrs: Any) -> Tensor:
    """Return the elements from start up to end by steps that may be negative; bounds outside are moved to the edge."""
    for axis, places in enumerate(sliced(x, *operands, **attrs)):
        if places.step > 0:
            x = x[(*[slice(None)] * axis, slice(places.start, places.stop, places.step))]
        else:
            # torch has no negative steps
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64))
    return x
