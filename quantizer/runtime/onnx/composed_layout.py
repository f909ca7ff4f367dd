"""Replaces ONNX's layout operators by operators of the registry, see `composed`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from quantizer.runtime.onnx.composed import Run, composed, floats, one, reshaped
from quantizer.runtime.onnx.kernels import Ours, axis_of, scalar, whole
from quantizer.runtime.onnx.layout import unsqueezed
from quantizer.runtime.onnx.slicing import sliced, split_sizes


@composed("Identity")
def identity(_: Run, x: Tensor) -> Tensor:
    """Return the operand itself."""
    return x


@composed("Dropout")
def dropout(_: Run, x: Tensor, *rest: Tensor | None, made: int, **_attrs: Any) -> Tensor | None:
    """Return the operand, except in training."""
    training = scalar(rest[1], 0) if len(rest) > 1 else 0
    return None if training or made > 1 else x


@composed("Cast")
def cast(_: Run, x: Tensor, *, op: Any, ctx: Any, **_attrs: Any) -> Tensor | None:
    """Return the operand if its type stays."""
    return x if ctx.dtype(op.inputs[0]) == ctx.dtype(op.outputs[0]) else None


@composed("Unsqueeze")
def unsqueeze(run: Run, x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] = ()) -> Tensor | None:
    """Run Unsqueeze as the registry's reshape."""
    return reshaped(run, x, unsqueezed(x, given, axes)) if floats(x) and x.dim() else None


@composed("Squeeze")
def squeeze(_: Run, x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] | None = None) -> Tensor | None:
    """Return the operand if no axis has size 1."""
    return x if given is None and axes is None and 1 not in x.shape else None


@composed("Concat")
def concat(run: Run, *operands: Tensor, axis: int) -> Tensor | None:
    """Concatenate any number of operands, four at a time."""
    parts = [v for v in operands if v.numel()]
    if not parts or not floats(*parts):
        return None
    while len(parts) > 1:
        first = run(Ours("concat", dict(zip("abcd", parts, strict=False)), {"axis": axis}))
        parts = [first, *parts[4:]]
    return parts[0]


@composed("Split")
def split(
    run: Run,
    x: Tensor,
    given: Tensor | None = None,
    *,
    axis: int,
    split: Sequence[int] | None = None,
    num_outputs: int | None = None,
    made: int,
) -> list[Tensor] | None:
    """Run a slice for each part."""
    along = axis_of("Split", axis, x.dim())
    sizes = split_sizes(x.shape[along], given, split, num_outputs, made)
    if not floats(x) or min(sizes) < 1:
        return None
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [_slice(run, x, along, end - size, end, 1) for size, end in zip(sizes, ends, strict=True)]


def _slice(run: Run, x: Tensor, axis: int, begin: int, end: int, stride: int) -> Tensor:
    """Run one slice along one axis; an end before the first element is written as one outside."""
    rank = x.dim()
    if end < 0:
        # -1 would count from the end
        end = -x.shape[axis] - 1
    attrs = {
        "begin": tuple(begin if i == axis else 0 for i in range(rank)),
        "end": tuple(end if i == axis else size for i, size in enumerate(x.shape)),
        "strides": tuple(stride if i == axis else 1 for i in range(rank)),
    }
    return one(run, "slice", x, **attrs)


@composed("Gather")
def gather(run: Run, x: Tensor, indices: Tensor, *, axis: int) -> Tensor | None:
    """Run a slice if the indices are evenly spaced."""
    along = axis_of("Gather", axis, x.dim())
    size, found = x.shape[along], whole(indices)
    if not floats(x) or indices.dim() > 1 or not found or any(not -size <= i < size for i in found):
        return None
    # negative indices count from the end
    places = [i % size for i in found]
    step = places[1] - places[0] if len(places) > 1 else 1
    if step == 0 or any(b - a != step for a, b in pairwise(places)):
        return None
    part = _slice(run, x, along, places[0], places[-1] + (1 if step > 0 else -1), step)
    shape = part.shape if indices.dim() else (*x.shape[:along], *x.shape[along + 1 :])
    return reshaped(run, part, shape)


@composed("Slice")
def slice_(_: Run, x: Tensor, *operands: Tensor | None, **attrs: Any) -> Tensor | None:
    """Return the operand if no element is left out."""
    taken = sliced(x, *operands, **attrs)
    return x if all(r == range(size) for r, size in zip(taken, x.shape, strict=True)) else None


@composed("Expand")
def expand(run: Run, x: Tensor, shape: Tensor) -> Tensor | None:
    """Insert axes of size 1 in front, then repeat axes of size 1."""
    if not floats(x):
        return None
    wanted = torch.broadcast_shapes(x.shape, tuple(whole(shape)))
    full = reshaped(run, x, (*[1] * (len(wanted) - x.dim()), *x.shape))
    repeats = tuple(want // have for want, have in zip(wanted, full.shape, strict=True))
    return full if set(repeats) <= {1} else one(run, "replicate", full, repeats=repeats)
