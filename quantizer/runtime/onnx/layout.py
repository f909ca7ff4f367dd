"""Layout: operators that move elements without computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import Ours, Outcome, axis_of, kernel, mapped, one_of, scalar, sized, whole

SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
PLAIN = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)

ORDERS = ("DCR", "CRD")
"""The order in which the channels of DepthToSpace and SpaceToDepth hold a block: depth, column, row (DCR) or CRD."""


def moves(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Run a function that only moves elements; formats that torch barely supports are moved as plain bits."""

    @wraps(function)
    def moved(*operands: Tensor | None, **named: Any) -> Outcome:
        kind = operands[0].dtype if operands[0] is not None else torch.float32
        if kind in PLAIN:
            return function(*operands, **named)
        # an integer type of the same width: moving bits needs no arithmetic
        bits = SIGNED[kind.itemsize]
        found = function(*(v.view(bits) if v is not None and v.dtype == kind else v for v in operands), **named)
        return found.view(kind) if isinstance(found, Tensor) else [part.view(kind) for part in found]

    return moved


def is_plain(x: Tensor) -> bool:
    """Return whether x holds floats that the registry's operators compute with."""
    return x.is_floating_point() and x.dtype in PLAIN and x.dim() > 0 and x.numel() > 0


def reshaped(x: Tensor, wanted: Sequence[int], *, allow_zero: bool) -> tuple[int, ...]:
    """Return *wanted* with 0 replaced by x's own size (unless *allow_zero*) and -1 by the remainder."""
    sizes = [x.shape[i] if size == 0 and not allow_zero and i < x.dim() else size for i, size in enumerate(wanted)]
    if sizes.count(-1) == 1:
        rest = math.prod(size for size in sizes if size != -1)
        # without elements the remainder is not determined; 0 keeps their number
        sizes[sizes.index(-1)] = x.numel() // rest if rest else 0
    if min(sizes, default=0) < 0 or math.prod(sizes) != x.numel():
        raise UnsupportedError(f"Reshape of {list(x.shape)} to {list(wanted)}: the number of elements must not change.")
    return tuple(sizes)


@mapped("Reshape")
def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Ours | None:
    """Map to the registry's reshape."""
    sizes = reshaped(x, whole(shape), allow_zero=bool(allowzero))
    return Ours("reshape", {"x": x}, {"shape": sizes}) if is_plain(x) and sizes else None


@kernel("Reshape")
def reshape_any(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """Reshape x."""
    return x.reshape(reshaped(x, whole(shape), allow_zero=bool(allowzero)))


def _flat(x: Tensor, axis: int) -> tuple[int, int]:
    if not -x.dim() <= axis <= x.dim():
        raise UnsupportedError(f"Flatten: axis {axis}: must lie in [{-x.dim()}, {x.dim()}].")
    first = axis + x.dim() if axis < 0 else axis
    return math.prod(x.shape[:first]), math.prod(x.shape[first:])


@mapped("Flatten")
def flatten(x: Tensor, *, axis: int) -> Ours | None:
    """Map to the registry's reshape."""
    return Ours("reshape", {"x": x}, {"shape": _flat(x, axis)}) if is_plain(x) else None


@kernel("Flatten")
def flatten_any(x: Tensor, *, axis: int) -> Tensor:
    """Flatten x to a matrix: axes before *axis* are its rows, the others its columns."""
    return x.reshape(_flat(x, axis))


def _squeezed(x: Tensor, given: Tensor | None, axes: Sequence[int] | None) -> list[int]:
    wanted = whole(given) if given is not None else axes
    chosen = (
        [i for i, size in enumerate(x.shape) if size == 1]
        if wanted is None
        else [axis_of("Squeeze", axis, x.dim()) for axis in wanted]
    )
    if any(x.shape[axis] != 1 for axis in chosen):
        raise UnsupportedError(f"Squeeze of {list(x.shape)} at axes {chosen}: their sizes must be 1.")
    return chosen


@mapped("Squeeze")
def squeeze(x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] | None = None) -> Ours | None:
    """Map to the registry's squeeze."""
    chosen = tuple(sorted(set(_squeezed(x, given, axes))))
    return Ours("squeeze", {"x": x}, {"axes": chosen}) if chosen and is_plain(x) else None


@kernel("Squeeze")
def squeeze_any(x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] | None = None) -> Tensor:
    """Return x without the named axes of size 1, or without all of them if none is named."""
    chosen = _squeezed(x, given, axes)
    return x.reshape([size for i, size in enumerate(x.shape) if i not in chosen])


def unsqueezed(x: Tensor, given: Tensor | None, axes: Sequence[int]) -> list[int]:
    """Return x's shape with axes of size 1 at their places in the result."""
    wanted = whole(given) if given is not None else list(axes)
    rank = x.dim() + len(wanted)
    chosen = {axis_of("Unsqueeze", axis, rank) for axis in wanted}
    if len(chosen) != len(wanted):
        raise UnsupportedError(f"Unsqueeze: axes {wanted}: must differ.")
    sizes = iter(x.shape)
    return [1 if i in chosen else next(sizes) for i in range(rank)]


@kernel("Unsqueeze")
def unsqueeze(x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] = ()) -> Tensor:
    """Insert axes of size 1 into x; *axes* counts in the result."""
    return x.reshape(unsqueezed(x, given, axes))


@mapped("Transpose")
def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Ours | None:
    """Map to the registry's transpose; without perm the axes are reversed."""
    order = tuple(reversed(range(x.dim()))) if perm is None else tuple(perm)
    return Ours("transpose", {"x": x}, {"perm": order}) if is_plain(x) else None


@kernel("Transpose")
@moves
def transpose_any(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    """Permute the axes."""
    return x.permute(tuple(reversed(range(x.dim()))) if perm is None else tuple(perm))


@mapped("Concat")
def concat(*operands: Tensor, axis: int) -> Ours | None:
    """Map to the registry's concat, of two to four operands."""
    fits = 2 <= len(operands) <= 4 and all(is_plain(v) and v.dtype == operands[0].dtype for v in operands)
    return Ours("concat", dict(zip("abcd", operands, strict=False)), {"axis": axis}) if fits else None


@kernel("Concat")
@moves
def concat_any(*operands: Tensor, axis: int) -> Tensor:
    """Concatenate the operands along an axis."""
    if len({(v.dtype, v.dim()) for v in operands}) > 1:
        raise UnsupportedError("Concat: operands must be of one type and rank.")
    return torch.cat(operands, dim=axis_of("Concat", axis, operands[0].dim()))


@mapped("Tile")
def tile(x: Tensor, repeats: Tensor) -> Ours | None:
    """Map to the registry's replicate."""
    counts = tuple(whole(repeats))
    fits = is_plain(x) and len(counts) == x.dim() and min(counts) >= 1
    if fits:
        sized("Tile", [n * size for n, size in zip(counts, x.shape, strict=True)], x.dtype)
    return Ours("replicate", {"x": x}, {"repeats": counts}) if fits else None


@kernel("Tile")
@moves
def tile_any(x: Tensor, repeats: Tensor) -> Tensor:
    """Repeat along each axis."""
    counts = whole(repeats)
    if len(counts) != x.dim():
        raise UnsupportedError(f"Tile: repeats {counts}: must be one for each of {x.dim()} axes.")
    sized("Tile", [n * size for n, size in zip(counts, x.shape, strict=True)], x.dtype)
    return x.repeat(counts)


@kernel("Expand")
@moves
def expand(x: Tensor, shape: Tensor) -> Tensor:
    """Broadcast x and *shape* with each other."""
    wanted = sized("Expand", whole(shape), x.dtype)
    try:
        both = torch.broadcast_shapes(x.shape, wanted)
    except RuntimeError:
        raise UnsupportedError(f"Expand of {list(x.shape)} to {list(wanted)}: must broadcast.") from None
    # a clone, because an expanded tensor shares its elements, and handlers may write
    return x.expand(sized("Expand", both, x.dtype)).clone()


@mapped("Pad")
def pad(
    x: Tensor,
    given: Tensor | None = None,
    fill: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str,
    pads: Sequence[int] | None = None,
    value: float = 0.0,
) -> Ours | None:
    """Map to the registry's pad: zero or more places of one value around every axis."""
    padding = tuple(whole(given) if given is not None else pads or ())
    if axes is not None and len(padding) == 2 * axes.numel():
        chosen = [axis_of("Pad", axis, x.dim()) for axis in whole(axes)]
        both = [dict(zip(chosen, side, strict=True)) for side in (padding[: len(chosen)], padding[len(chosen) :])]
        padding = tuple(side.get(axis, 0) for side in both for axis in range(x.dim()))
    number = float(scalar(fill, value))
    fits = mode == "constant" and min(padding, default=-1) >= 0 and len(padding) == 2 * x.dim()
    return Ours("pad", {"x": x}, {"padding": padding, "value": number}) if fits and is_plain(x) else None


@kernel("Pad")
@moves
def pad_any(
    x: Tensor,
    given: Tensor | None = None,
    fill: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str,
    pads: Sequence[int] | None = None,
    value: float = 0.0,
) -> Tensor:
    """Pad x with a constant, a reflection, its edge or wrapped; negative pads crop."""
    padding = whole(given) if given is not None else list(pads or ())
    chosen = [axis_of("Pad", axis, x.dim()) for axis in whole(axes)] if axes is not None else list(range(x.dim()))
    if len(padding) != 2 * len(chosen):
        raise UnsupportedError(f"Pad: {len(padding)} pads for {len(chosen)} axes: must be two for each.")
    for axis, before, after in zip(chosen, padding, padding[len(chosen) :], strict=False):
        # negative pads crop first
        x = x.narrow(axis, max(0, -before), max(0, x.shape[axis] + min(0, before) + min(0, after)))
        low, high = max(0, before), max(0, after)
        if not (low or high):
            continue
        size = x.shape[axis]
        sized("Pad", [low + n + high if i == axis else n for i, n in enumerate(x.shape)], x.dtype)
        if mode == "constant":
            wide = x.new_full([low + n + high if i == axis else n for i, n in enumerate(x.shape)], scalar(fill, value))
            wide.narrow(axis, low, size).copy_(x)
            x = wide
        elif mode in ("reflect", "edge", "wrap"):
            kind: Any = mode
            # padding the indices in numpy has the standard's modes, for any type of elements
            x = x.index_select(axis, torch.from_numpy(np.pad(np.arange(size), (low, high), mode=kind)))
        else:
            raise UnsupportedError(f"Pad: mode={mode!r}: must be constant, reflect, edge or wrap.")
    return x


def _blocks(op: str, x: Tensor, block: int) -> None:
    if x.dim() != 4 or block < 1:
        raise UnsupportedError(f"{op} of shape {list(x.shape)} in blocks of {block}: must be images.")


@mapped("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Ours | None:
    """Map to the registry's depth_to_space."""
    _blocks("DepthToSpace", x, blocksize)
    fits = is_plain(x) and mode in ORDERS
    return Ours("depth_to_space", {"x": x}, {"block": blocksize, "mode": mode}) if fits else None


@kernel("DepthToSpace")
@moves
def depth_to_space_any(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Turn channels into blocks of pixels. DCR: a channel is (row, column, rest); CRD: (rest, row, column)."""
    _blocks("DepthToSpace", x, blocksize)
    n, c, h, w = x.shape
    one_of("DepthToSpace", "mode", mode, ORDERS)
    if c % (blocksize * blocksize):
        raise UnsupportedError(f"DepthToSpace of {c} channels: must be a multiple of blocksize={blocksize} squared.")
    rest = c // (blocksize * blocksize)
    if mode == "DCR":
        # from [n, row, column, rest, h, w] to [n, rest, h, row, w, column]
        y = x.reshape(n, blocksize, blocksize, rest, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        # from [n, rest, row, column, h, w] to the same order
        y = x.reshape(n, rest, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, rest, h * blocksize, w * blocksize)


@mapped("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Ours | None:
    """Map to the registry's space_to_depth."""
    _blocks("SpaceToDepth", x, blocksize)
    return Ours("space_to_depth", {"x": x}, {"block": blocksize}) if is_plain(x) and mode == "DCR" else None


@kernel("SpaceToDepth")
@moves
def space_to_depth_any(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Turn blocks of pixels into channels. DCR: a new channel is (row, column, old); CRD: (old, row, column)."""
    _blocks("SpaceToDepth", x, blocksize)
    n, c, h, w = x.shape
    one_of("SpaceToDepth", "mode", mode, ORDERS)
    if h % blocksize or w % blocksize:
        raise UnsupportedError(f"SpaceToDepth of {h} x {w}: must be multiples of blocksize={blocksize}.")
    # the axes to permute are n, c, h, row, w, column
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize).permute(order)
    return y.reshape(n, c * blocksize * blocksize, h // blocksize, w // blocksize)


@kernel("Shape")
def shape_(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    """Return the sizes of the axes from start up to end."""
    return torch.tensor(x.shape[slice(start, end)], dtype=torch.int64)


@kernel("Size")
def size_(x: Tensor) -> Tensor:
    """Return the number of elements."""
    return torch.tensor(x.numel())


@kernel("Trilu")
@moves
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int) -> Tensor:
    """Return the upper or the lower triangle, zeros elsewhere."""
    return (torch.triu if upper else torch.tril)(x, int(scalar(k, 0)))
