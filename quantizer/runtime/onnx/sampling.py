"""Sampling between elements: grids, affine maps, deformed convolutions; also crops, eye matrices, determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import container
from quantizer.runtime.onnx.kernels import axis_of, kernel, one_of, sized, whole

MODES = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic", "cubic": "bicubic"}
"""ONNX's names of opset 16 and 20 -> torch's."""


@kernel("GridSample", widens=True)
def grid_sample(x: Tensor, grid: Tensor, *, align_corners: int, mode: str, padding_mode: str) -> Tensor:
    """Sample x at the places that a grid names, from -1 to 1 along each axis, the last axis first."""
    one_of("GridSample", "mode", mode, MODES)
    one_of("GridSample", "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    if x.dim() not in (4, 5) or (x.dim() == 5 and MODES[mode] == "bicubic"):
        raise UnsupportedError(f"GridSample of {x.dim()} axes with mode={mode!r}: must be 4, or 5 unless cubic.")
    if grid.dim() != x.dim() or grid.shape[-1] != x.dim() - 2 or grid.shape[0] != x.shape[0]:
        raise UnsupportedError(
            f"GridSample of {list(x.shape)} at {list(grid.shape)}: grid must be [{x.shape[0]}, ..., {x.dim() - 2}] "
            f"with {x.dim()} axes."
        )
    if grid.dtype != x.dtype:
        wider = torch.promote_types(x.dtype, grid.dtype)
        found = grid_sample(
            x.to(wider), grid.to(wider), align_corners=align_corners, mode=mode, padding_mode=padding_mode
        )
        return found.to(x.dtype)
    if mode == "nearest" and padding_mode == "reflection":
        return _nearest_reflected(x, grid, align_corners=bool(align_corners))
    return F.grid_sample(x, grid, MODES[mode], padding_mode, align_corners=bool(align_corners))


def _nearest_reflected(x: Tensor, grid: Tensor, *, align_corners: bool) -> Tensor:
    """Return the nearest elements; a place is rounded first and then reflected; torch reflects first."""
    rank, indices = x.dim() - 2, list[Tensor]()
    for i, size in enumerate(x.shape[2:]):
        # the grid names the last axis first
        places = grid[..., rank - 1 - i]
        # -1 and 1 are the centres of the corner elements, or the outer edges
        low, span = (0, size - 1) if align_corners else (-0.5, size)
        nearest = ((places + 1) * (span / 2) + low).round()
        # reflection has the period 2 * span
        folded = (
            (nearest - low).abs().nan_to_num(nan=0.0, posinf=0.0) % (2 * span) if span else torch.zeros_like(nearest)
        )
        inside = torch.where(folded > span, 2 * span - folded, folded) + low
        indices.append(inside.clamp(0, size - 1).long())
    images = torch.arange(x.shape[0]).reshape(-1, *[1] * rank)
    return x.movedim(1, -1)[(images, *indices)].movedim(-1, 1).contiguous()


@kernel("AffineGrid", widens=True)
def affine_grid(theta: Tensor, lengths: Tensor, *, align_corners: int) -> Tensor:
    """Return the place to which an affine map takes each pixel, from -1 to 1 along each axis, the last axis first.

    With align_corners rows and columns need two places: the standard's function divides by 0 where there is one, and
    engines differ (-1 in the reference, 1 in ONNX Runtime).
    """
    sizes = whole(lengths)
    rank = len(sizes) - 2
    if rank not in (2, 3) or theta.shape != (sizes[0], rank, rank + 1):
        raise UnsupportedError(
            f"AffineGrid of {list(theta.shape)} for an image of {sizes}: must be [n, 2, 3] for [n, c, h, w], or "
            "[n, 3, 4] for [n, c, d, h, w]."
        )
    if align_corners and 1 in sizes[-2:]:
        raise UnsupportedError(
            f"AffineGrid: align_corners=1 for an image of {sizes}: must have two rows and columns or more."
        )
    sized("AffineGrid", (sizes[0], *sizes[2:], rank), theta.dtype)
    axes = []
    for size in sizes[2:]:
        step = 2 / max(size - 1, 1) if align_corners else 2 / max(size, 1)
        # from -1 to 1 between centres, or half a step inside
        axes.append(torch.arange(size, dtype=theta.dtype) * step - (1 if align_corners else 1 - step / 2))
    places = torch.stack(
        # (x, y, 1): homogeneous coordinates, the last axis first
        [*reversed(torch.meshgrid(*axes, indexing="ij")), torch.ones(sizes[2:], dtype=theta.dtype)],
        dim=-1,
    )
    return (places.reshape(-1, rank + 1) @ theta.mT).reshape(sizes[0], *sizes[2:], rank)


@kernel("DeformConv", widens=True)
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    group: int,
    offset_group: int,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Convolve images at places moved by offsets (row, column): interpolated, zero outside, times a mask."""
    window = tuple(w.shape[2:])
    (sy, sx), (dy, dx), (top, left, bottom, right) = strides or (1, 1), dilations or (1, 1), pads or (0,) * 4
    if x.dim() != 4 or w.dim() != 4 or tuple(kernel_shape or window) != window or x.shape[1] % offset_group:
        raise UnsupportedError(
            f"DeformConv of {list(x.shape)} with weights {list(w.shape)}, {kernel_shape=}, {offset_group=}: both must "
            "have 4 axes, kernel_shape must be the weights', and offset_group must divide the channels."
        )
    rows = (x.shape[2] + top + bottom - dy * (window[0] - 1) - 1) // sy + 1
    columns = (x.shape[3] + left + right - dx * (window[1] - 1) - 1) // sx + 1
    places = math.prod(window)
    if offset.shape != (x.shape[0], 2 * places * offset_group, rows, columns):
        raise UnsupportedError(f"DeformConv: offset of shape {list(offset.shape)}.")
    # 2: row and column
    moves = offset.reshape(x.shape[0], offset_group, places, 2, rows, columns)
    weight_of = x.new_ones(1) if mask is None else mask.reshape(x.shape[0], offset_group, 1, places, rows, columns)
    # the place of each tap without offsets: [taps, rows, 1]
    at_y = torch.arange(rows).reshape(-1, 1) * sy - top + (torch.arange(places) // window[1] * dy).reshape(-1, 1, 1)
    at_x = torch.arange(columns) * sx - left + (torch.arange(places) % window[1] * dx).reshape(-1, 1, 1)
    y, z = at_y + moves[:, :, :, 0], at_x + moves[:, :, :, 1]
    parts = x.reshape(x.shape[0] * offset_group, -1, *x.shape[2:])
    sampled = _interpolated(parts, y.reshape(len(parts), -1), z.reshape(len(parts), -1))
    values = sampled.reshape(x.shape[0], offset_group, -1, places, rows, columns) * weight_of
    # [n, group, channels of a group * taps, pixels]
    flat = values.reshape(x.shape[0], group, x.shape[1] // group * places, rows * columns)
    filters = w.reshape(group, w.shape[0] // group, -1)
    made = torch.einsum("ngkp,gok->ngop", flat, filters).reshape(x.shape[0], w.shape[0], rows, columns)
    return made if b is None else made + b.reshape(-1, 1, 1)


def _interpolated(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return x [n, c, h, w] at places [n, p], interpolated linearly, with zeros around it: [n, c, p]."""
    low_y, low_x = rows.floor(), columns.floor()
    found = torch.zeros((), dtype=x.dtype)
    for y, near_y in ((low_y, low_y + 1 - rows), (low_y + 1, rows - low_y)):
        for z, near_x in ((low_x, low_x + 1 - columns), (low_x + 1, columns - low_x)):
            inside = (y >= 0) & (y < x.shape[2]) & (z >= 0) & (z < x.shape[3])
            # places outside read element 0, and have weight 0
            row, column = (torch.where(inside, place, 0.0).long() for place in (y, z))
            places = (row * x.shape[3] + column).unsqueeze(1)
            taken = x.flatten(2).gather(2, places.expand(-1, x.shape[1], -1))
            found = found + torch.where(inside, near_y * near_x, 0.0).to(x.dtype).unsqueeze(1) * taken
    return found


@kernel("Col2Im", widens=True)
def col2im(
    x: Tensor,
    image: Tensor,
    block: Tensor,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Put windows back into their image, added where they overlap: [n, c * places, windows] -> [n, c, image]."""
    sizes, window = whole(image), whole(block)
    rank = len(sizes)
    steps, holes = list(strides or [1] * rank), list(dilations or [1] * rank)
    around = list(pads or [0] * (2 * rank))
    places = math.prod(window)
    if x.dim() != 3 or not {len(window), len(steps), len(holes), len(around) // 2} == {rank} or min(window) < 1:
        raise UnsupportedError(
            f"Col2Im of {list(x.shape)} in blocks of {window}: must have 3 axes, and {rank} positive sizes a block, "
            f"with {rank} strides and dilations and {2 * rank} pads."
        )
    wide = [size + around[i] + around[i + rank] for i, size in enumerate(sizes)]
    counts = [(w - h * (k - 1) - 1) // s + 1 for w, h, k, s in zip(wide, holes, window, steps, strict=True)]
    if x.shape[1] % places or min(counts) < 1 or math.prod(counts) != x.shape[2]:
        raise UnsupportedError(
            f"Col2Im of {list(x.shape)} in blocks of {window}: must be [n, a multiple of {places}, {counts} windows]."
        )
    y = x.new_zeros(sized("Col2Im", (x.shape[0], x.shape[1] // places, *wide), x.dtype))
    parts = x.reshape(x.shape[0], x.shape[1] // places, places, *counts)
    for place in range(places):
        inner, index = place, list[slice]()
        for i in reversed(range(rank)):
            start = inner % window[i] * holes[i]
            index.insert(0, slice(start, start + (counts[i] - 1) * steps[i] + 1, steps[i]))
            inner //= window[i]
        # one place of the window for all windows at once: no two of them write the same element
        y[(slice(None), slice(None), *index)] += parts[:, :, place]
    return y[(slice(None), slice(None), *(slice(around[i], around[i] + size) for i, size in enumerate(sizes)))].clone()


@kernel("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    """Crop each axis to its middle, or put zeros around it; if the rest is odd, the larger part comes last."""
    wanted = whole(shape)
    along = [axis_of("CenterCropPad", axis, x.dim()) for axis in (range(x.dim()) if axes is None else axes)]
    if len(wanted) != len(along):
        raise UnsupportedError(f"CenterCropPad: {len(wanted)} sizes: must be one for each of axes {along}.")
    sizes = {**dict(enumerate(x.shape)), **dict(zip(along, wanted, strict=True))}
    y = x.new_zeros(sized("CenterCropPad", [sizes[i] for i in range(x.dim())], x.dtype))
    into, out = [], []
    for i, size in enumerate(x.shape):
        low, high = max(0, sizes[i] - size) // 2, max(0, size - sizes[i]) // 2
        count = min(size, sizes[i])
        into.append(slice(low, low + count))
        out.append(slice(high, high + count))
    y[tuple(into)] = x[tuple(out)]
    return y


@kernel("EyeLike")
def eye_like(x: Tensor, *, dtype: DType | None = None, k: int = 0) -> Tensor:
    """Return ones on the k-th diagonal, zeros elsewhere."""
    if x.dim() != 2:
        raise UnsupportedError(f"EyeLike of shape {list(x.shape)}: must be a matrix.")
    kind = container(dtype) if isinstance(dtype, DType) else x.dtype
    rows, columns = torch.arange(x.shape[0]).reshape(-1, 1), torch.arange(x.shape[1])
    return torch.eq(columns - rows, k).to(kind)


@kernel("Det", widens=True)
def det(x: Tensor) -> Tensor:
    """Return the determinant of each matrix."""
    found: Tensor = torch.linalg.det(x)
    return found
