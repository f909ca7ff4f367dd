"""Operators on indices: gather, scatter, and operators that return indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Node
from quantizer.ir.graph import Tensor as Value
from quantizer.runtime.onnx.kernels import (
    WIDENED,
    NoFunctionError,
    Ours,
    axis_of,
    kernel,
    mapped,
    one_of,
    scalar,
    sized,
    whole,
)
from quantizer.runtime.onnx.layout import PLAIN, is_plain, moves

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""ONNX's reduction of a scatter -> torch's."""


def _from_zero(op: str, indices: Tensor, size: int) -> Tensor:
    """Return indices counted from 0; one outside of [-size, size - 1] is refused."""
    indices = indices.to(torch.int64)
    if indices.numel() and not -size <= int(indices.min()) <= int(indices.max()) < size:
        raise UnsupportedError(f"{op}: every index must lie in [{-size}, {size - 1}].")
    return torch.where(indices < 0, indices + size, indices)


@mapped("Gather")
def mapped_gather(x: Tensor, indices: Tensor, *, axis: int) -> Ours | None:
    """Map to the registry's gather, its indices checked."""
    along = axis_of("Gather", axis, x.dim())
    if not is_plain(x) or not indices.numel():
        return None
    # only to refuse: the registry's gather takes negative indices itself
    _from_zero("Gather", indices, x.shape[along])
    return Ours("gather", {"x": x, "indices": indices}, {"axis": axis, "batch_dims": 0})


@kernel("Gather")
@moves
def gather(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Select slices of x along one axis by indices of any shape."""
    along = axis_of("Gather", axis, x.dim())
    chosen = _from_zero("Gather", indices, x.shape[along])
    picked = x.index_select(along, chosen.reshape(-1))
    return picked.reshape((*x.shape[:along], *indices.shape, *x.shape[along + 1 :]))


@mapped("GatherElements")
def mapped_gather_elements(x: Tensor, indices: Tensor, *, axis: int) -> Ours | None:
    """Map to the registry's gather_elements with checked indices, if their shape equals x's along the other axes."""
    along = axis_of("GatherElements", axis, x.dim())
    others = [size for place, size in enumerate(x.shape) if place != along]
    same = indices.dim() == x.dim() and others == [n for place, n in enumerate(indices.shape) if place != along]
    if not is_plain(x) or not indices.numel() or not same:
        return None
    _from_zero("GatherElements", indices, x.shape[along])
    return Ours("gather_elements", {"x": x, "indices": indices}, {"axis": axis})


@kernel("GatherElements")
@moves
def gather_elements(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Select elements of x: each index names the place along one axis."""
    along = axis_of("GatherElements", axis, x.dim())
    return torch.gather(x, along, _from_zero("GatherElements", indices, x.shape[along]))


@kernel("GatherND")
@moves
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Select elements or slices of x, which the last axis of indices names, after *batch_dims* shared axes."""
    depth = indices.shape[-1]
    if x.shape[:batch_dims] != indices.shape[:batch_dims] or batch_dims + depth > x.dim():
        raise UnsupportedError(
            f"GatherND of {list(x.shape)} by {list(indices.shape)}, {batch_dims=}: both must begin with the same "
            f"{batch_dims} axes, and indices of {depth} numbers must not exceed the other axes."
        )
    places = [_from_zero("GatherND", indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    rank = indices.dim() - 1
    # an index for each shared axis, shaped to broadcast with the others
    batches = [
        torch.arange(x.shape[i]).reshape([-1 if axis == i else 1 for axis in range(rank)]) for i in range(batch_dims)
    ]
    return x[(*batches, *places)]


@kernel("ScatterElements", "Scatter")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int, reduction: str = "none") -> Tensor:
    """Write updates into x: each index names the place of an update along one axis.

    The update replaces the old element or is reduced with it.
    """
    along = axis_of("ScatterElements", axis, x.dim())
    places = _from_zero("ScatterElements", indices, x.shape[along])
    _computes("ScatterElements", x, reduction)
    if reduction == "none":
        return x.scatter(along, places, updates)
    return x.scatter_reduce(along, places, updates, REDUCTIONS[reduction], include_self=True)


def _computes(op: str, x: Tensor, reduction: str) -> None:
    if x.dtype in WIDENED:
        raise NoFunctionError(f"{op} of {x.dtype}: no kernel takes this format.")
    one_of(op, "reduction", reduction, (*REDUCTIONS, "none"))
    if x.dtype not in PLAIN:
        raise UnsupportedError(f"{op} of {x.dtype}: no kernel takes this format.")


@kernel("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Write updates, elements or slices, to the places that the last axis of indices names."""
    depth = indices.shape[-1]
    _computes("ScatterND", x, reduction)
    if depth > x.dim() or updates.shape != (*indices.shape[:-1], *x.shape[depth:]):
        raise UnsupportedError(
            f"ScatterND of {list(updates.shape)} into {list(x.shape)} by {list(indices.shape)}: updates must have "
            f"shape {[*indices.shape[:-1], *x.shape[depth:]]}, and an index at most {x.dim()} numbers."
        )
    places = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for i in range(depth):
        # the place of a slice in x flattened over the indexed axes
        places = places * x.shape[i] + _from_zero("ScatterND", indices[..., i], x.shape[i])
    slices = math.prod(x.shape[depth:])
    flat = x.reshape(math.prod(x.shape[:depth]), slices)
    rows = places.reshape(-1, 1).expand(-1, slices)
    parts = updates.reshape(places.numel(), slices)
    if reduction == "none":
        return flat.scatter(0, rows, parts).reshape(x.shape)
    return flat.scatter_reduce(0, rows, parts, REDUCTIONS[reduction], include_self=True).reshape(x.shape)


@kernel("NonZero")
def non_zero(x: Tensor) -> Tensor:
    """Return the indices of the nonzero elements, a row for each axis; a scalar gives one row, as in ONNX Runtime.

    The standard's text gives a scalar no row, so that its result would hold no index at all.
    """
    plain = x if x.dtype in PLAIN else x.to(torch.float32)
    found = torch.nonzero(plain.reshape(1) if plain.dim() == 0 else plain)
    return found.T.contiguous()


@kernel("OneHot")
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int) -> Tensor:
    """Return the second value at each index, the first elsewhere; only the first for an index outside of the depth."""
    count, rank = int(scalar(depth, 0)), indices.dim() + 1
    along = axis_of("OneHot", axis, rank)
    sized("OneHot", (*indices.shape[:along], count, *indices.shape[along:]), values.dtype)
    places = indices.to(torch.int64).unsqueeze(along)
    inside = (places >= -count) & (places < count)
    places = torch.where(places < 0, places + count, places)
    classes = torch.arange(count).reshape([-1 if i == along else 1 for i in range(rank)])
    return torch.where((places == classes) & inside, values[1], values[0])


@kernel("ConstantOfShape")
def constant_of_shape(shape: Tensor, *, op: Node) -> Tensor:
    """Return a tensor of one value, float32 zero unless another is given."""
    value = op.extra.get("value")
    data = value.data if isinstance(value, Value) and value.data is not None else torch.zeros(1)
    return data.reshape(()).expand(sized("ConstantOfShape", whole(shape), data.dtype)).clone()


@kernel("Unique")
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1, made: int) -> tuple[Tensor, ...]:
    """Return the distinct elements, or slices along an axis, with first place, inverse index and count of each.

    They are in ascending order, or in the order of first appearance.
    """
    along = None if axis is None else axis_of("Unique", axis, x.dim())
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    _, first, which, count = np.unique(
        wide.numpy(), return_index=True, return_inverse=True, return_counts=True, axis=along
    )
    # numpy returns them in ascending order
    order = np.arange(len(first)) if sorted else np.argsort(first, kind="stable")
    places = torch.from_numpy(first[order])
    y = x.reshape(-1)[places] if along is None else x.index_select(along, places)
    # argsort inverts the permutation `order`
    inverse = np.argsort(order, kind="stable")[which.reshape(-1)]
    return (y, places, torch.from_numpy(inverse), torch.from_numpy(count[order]))[:made]


_STASHES = {1: torch.float32, 11: torch.float64}
"""TensorProto's numbers of the types that Range computes in."""


@kernel("Range")
def range_(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int | None = None) -> Tensor:
    """Return max(ceil((limit - start) / delta), 0) numbers: start, start + delta, ...; limit is excluded.

    16-bit numbers are computed in `stash_type` and rounded once.
    """
    first, last, step = (scalar(value, 0) for value in (start, limit, delta))
    if step == 0:
        raise UnsupportedError("Range: delta is 0: must not be.")
    # ceil by floor division, exact for integers of any size
    exact: Any = -((first - last) // step) if not start.is_floating_point() else math.ceil((last - first) / step)
    count = max(0, int(exact))
    sized("Range", (count,), start.dtype)
    if stash_type is not None and start.dtype in (torch.float16, torch.bfloat16):
        if stash_type not in _STASHES:
            raise UnsupportedError(f"Range: stash_type={stash_type}: must be 1 (float) or 11 (double).")
        wide = _STASHES[stash_type]
        return (start.to(wide).reshape(()) + torch.arange(count).to(wide) * delta.to(wide).reshape(())).to(start.dtype)
    return start.reshape(()) + torch.arange(count).to(start.dtype) * delta.reshape(())


@kernel("Compress")
@moves
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """Return the slices along one axis, or the elements, for which the condition holds."""
    flat = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else axis_of("Compress", axis, x.dim())
    if condition.numel() > flat.shape[along]:
        raise UnsupportedError(f"Compress of {flat.shape[along]} slices by {condition.numel()} conditions.")
    return flat.index_select(along, torch.nonzero(condition).reshape(-1))
