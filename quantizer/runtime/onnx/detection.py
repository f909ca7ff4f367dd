"""Boxes: suppression of overlapping boxes, means of regions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import kernel, one_of, scalar, sized


def _corners(boxes: Tensor, *, centred: bool) -> Tensor:
    """Return [y low, x low, y high, x high] of each box."""
    if centred:
        x, y, w, h = boxes.unbind(-1)
        return torch.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], dim=-1)
    y1, x1, y2, x2 = boxes.unbind(-1)
    return torch.stack(
        [torch.minimum(y1, y2), torch.minimum(x1, x2), torch.maximum(y1, y2), torch.maximum(x1, x2)], dim=-1
    )


def _overlap(one: Tensor, others: Tensor) -> Tensor:
    """Return intersection over union with each of *others*; 0 for an empty union."""
    low, high = torch.maximum(one[:2], others[:, :2]), torch.minimum(one[2:], others[:, 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    union = (one[2:] - one[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(dim=-1) - shared
    return torch.where(union > 0, shared / union, torch.zeros_like(union))


@kernel("NonMaxSuppression")
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    iou: Tensor | None = None,
    least: Tensor | None = None,
    *,
    center_point_box: int,
) -> Tensor:
    """Return [batch, class, box] of the best boxes. A box that overlaps a better one too much is left out."""
    limit, threshold, floor = int(scalar(most, 0)), float(scalar(iou, 0.0)), scalar(least, None)
    found: list[list[int]] = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], centred=bool(center_point_box))
        for kind in range(scores.shape[1]):
            own = scores[batch, kind]
            # stable: of equal scores the first box is the better one
            left = torch.argsort(own, descending=True, stable=True)
            left = left if floor is None else left[own[left] > floor]
            for _ in range(limit):
                if not len(left):
                    break
                best = left[0]
                found.append([batch, kind, int(best)])
                left = left[1:][_overlap(corners[best], corners[left[1:]]) <= threshold]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def _samples(start: float, size: float, bins: int, grid: int) -> Tensor:
    """Return the coordinates of *grid* samples in each of *bins*."""
    width = size / bins
    return torch.tensor([start + i * width + (j + 0.5) * width / grid for i in range(bins) for j in range(grid)])


def _neighbours(points: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return whether points lie in the image, both neighbours, and the weight of the second."""
    inside = (points >= -1) & (points <= size)
    at = points.clamp(min=0)
    low = at.floor().long().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    return inside, low, high, torch.where(low >= size - 1, torch.zeros_like(at), at - low)


@kernel("RoiAlign", widens=True)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    coordinate_transformation_mode: str = "output_half_pixel",
) -> Tensor:
    """Return for each bin of each region the mean of its samples, or the largest weighted neighbour."""
    one_of("RoiAlign", "mode", mode, ("avg", "max"))
    centres = ("half_pixel", "output_half_pixel")
    one_of("RoiAlign", "coordinate_transformation_mode", coordinate_transformation_mode, centres)
    half = coordinate_transformation_mode == "half_pixel"
    bins = (output_height, output_width)
    found = []
    for roi, batch in zip(rois.tolist(), batch_indices.tolist(), strict=True):
        if not 0 <= batch < x.shape[0]:
            raise UnsupportedError(f"RoiAlign: batch index {batch}: must lie in [0, {x.shape[0] - 1}].")
        x1, y1, x2, y2 = (value * spatial_scale - (0.5 if half else 0.0) for value in roi)
        # without the half pixel, regions have at least one element, as in the operator's first version
        sizes = [size if half else max(size, 1.0) for size in (y2 - y1, x2 - x1)]
        grid = [sampling_ratio or math.ceil(size / count) for size, count in zip(sizes, bins, strict=True)]
        if min(grid) < 1:
            found.append(torch.zeros(x.shape[1], *bins, dtype=x.dtype))
            continue
        rows = _neighbours(_samples(y1, sizes[0], bins[0], grid[0]), x.shape[2])
        columns = _neighbours(_samples(x1, sizes[1], bins[1], grid[1]), x.shape[3])
        inside = (rows[0].reshape(-1, 1) & columns[0]).to(x.dtype)
        parts = []
        for y, wy in ((rows[1], 1 - rows[3]), (rows[2], rows[3])):
            for z, wz in ((columns[1], 1 - columns[3]), (columns[2], columns[3])):
                weight = (wy.reshape(-1, 1) * wz).to(x.dtype) * inside
                parts.append(x[batch][:, y][:, :, z] * weight)
        values = sum(parts, torch.zeros(())) if mode == "avg" else torch.stack(parts).amax(dim=0)
        # the cells have the shape [c, bins, samples, bins, samples]
        cells = values.reshape(x.shape[1], bins[0], grid[0], bins[1], grid[1])
        found.append(cells.mean(dim=(2, 4)) if mode == "avg" else cells.amax(dim=(2, 4)))
    return torch.stack(found) if found else torch.zeros(0, x.shape[1], *bins, dtype=x.dtype)


@kernel("MaxRoiPool")
def max_roi_pool(x: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float) -> Tensor:
    """Return the largest element of each bin of each region; 0 for an empty bin."""
    rows, columns = sized("MaxRoiPool", (rois.shape[0], x.shape[1], *pooled_shape), x.dtype)[2:]
    y = x.new_zeros(rois.shape[0], x.shape[1], rows, columns)
    for place, (batch, *corners) in enumerate(rois.tolist()):
        if not 0 <= batch < x.shape[0]:
            raise UnsupportedError(f"MaxRoiPool: image {batch:g}: must lie in [0, {x.shape[0] - 1}].")
        # half up, as C's round for nonnegative numbers
        x1, y1, x2, y2 = (math.floor(value * spatial_scale + 0.5) for value in corners)
        for i in range(rows):
            low, high = _bin(i, y1, y2, rows, x.shape[2])
            for j in range(columns):
                left, right = _bin(j, x1, x2, columns, x.shape[3])
                if low < high and left < right:
                    y[place, :, i, j] = x[int(batch), :, low:high, left:right].amax(dim=(1, 2))
    return y


def _bin(place: int, first: int, last: int, count: int, size: int) -> tuple[int, int]:
    """Return the first element of bin *place* and the one after its last, clamped to an axis of *size* elements.

    A region from *first* to *last* is cut into *count* bins of one real width; a bin includes every element that it
    touches.
    """
    width = max(last - first + 1, 1) / count
    begin, end = math.floor(place * width), math.ceil((place + 1) * width)
    return min(max(begin + first, 0), size), min(max(end + first, 0), size)
