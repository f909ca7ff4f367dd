"""Resize: interpolation axis by axis.

Source of coordinates and weights: the ONNX operator Resize and the formulas of its tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import Ours, axis_of, kernel, mapped, sized, whole
from quantizer.runtime.onnx.layout import moves

ROUNDED = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}
POLICIES = ("stretch", "not_larger", "not_smaller")


def _coordinate(mode: str, place: int, scale: float, size: int, count: int, roi: tuple[float, float]) -> float:
    """Return where the *place*-th of *count* outputs lies among *size* inputs."""
    exact = scale * size
    match mode:
        case "half_pixel":
            return (place + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return size / 2 * (1 - count / exact) + (place + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return 0.0 if exact == 1 else (place + 0.5) / scale - 0.5
        case "align_corners":
            return 0.0 if exact == 1 else place * (size - 1) / (exact - 1)
        case "asymmetric":
            return place / scale
        case "tf_half_pixel_for_nn":
            return (place + 0.5) / scale
        case "tf_crop_and_resize":
            if count == 1:
                return (roi[0] + roi[1]) * (size - 1) / 2
            return roi[0] * (size - 1) + place * (roi[1] - roi[0]) * (size - 1) / (exact - 1)
    raise UnsupportedError(f"Resize: coordinate_transformation_mode={mode!r}.")


def _cubic(distance: float, a: float) -> float:
    """Return the weight of a neighbour by Keys' cubic convolution with constant *a*."""
    d = abs(distance)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def _weights(mode: str, ratio: float, scale: float, a: float, *, antialias: bool) -> tuple[int, list[float]]:
    """Return where the neighbours of a coordinate start, counted from its floor, and their weights."""
    reach = 1 if mode == "linear" else 2
    shrink = min(scale, 1.0) if antialias else 1.0
    start = math.floor(-reach / shrink) + 1
    places = range(start, 2 - start if mode == "cubic" else start + 2 - 2 * start)
    distances = [shrink * (place - ratio) for place in places]
    raw = [max(0.0, 1 - abs(d)) if mode == "linear" else _cubic(d, a) for d in distances]
    total = sum(raw) if antialias else 1.0
    return start, [weight / total for weight in raw]


def _interpolated(
    x: Tensor, axis: int, points: Sequence[float], scale: float, mode: str, a: float, *, antialias: bool, exclude: bool
) -> Tensor:
    """Return x at *points* of one axis, its edge repeated; with *exclude*, what lies outside has no weight."""
    size = x.shape[axis]
    if not points:
        return x.narrow(axis, 0, 0)
    rows: list[list[float]] = []
    places: list[list[int]] = []
    for point in points:
        base = math.floor(point)
        ratio = point - base
        if ratio == 0:
            base, ratio = base - 1, 1.0
        start, weights = _weights(mode, ratio, scale, a, antialias=antialias)
        at = [base + start + k for k in range(len(weights))]
        if exclude:
            weights = [w if 0 <= p < size else 0.0 for w, p in zip(weights, at, strict=True)]
            total = sum(weights)
            weights = [w / total for w in weights]
        rows.append(weights)
        places.append([min(max(p, 0), size - 1) for p in at])
    factors, indices = torch.tensor(rows, dtype=torch.float64), torch.tensor(places)
    along = [-1 if i == axis else 1 for i in range(x.dim())]
    total_of = torch.zeros([len(points) if i == axis else n for i, n in enumerate(x.shape)], dtype=x.dtype)
    for k in range(factors.shape[1]):
        total_of = total_of + x.index_select(axis, indices[:, k]) * factors[:, k].reshape(along).to(x.dtype)
    return total_of


@moves
def _nearest(x: Tensor, *, axis: int, points: Sequence[float], nearest_mode: str) -> Tensor:
    if nearest_mode not in ROUNDED:
        raise UnsupportedError(f"Resize: nearest_mode={nearest_mode!r}: must be one of {', '.join(ROUNDED)}.")
    rounded = [min(max(ROUNDED[nearest_mode](point), 0), x.shape[axis] - 1) for point in points]
    return x.index_select(axis, torch.tensor(rounded, dtype=torch.int64))


OURS = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
"""Coordinates that the registry's operators have too."""


@mapped("Resize")
def resize(
    x: Tensor, *operands: Tensor | None, mode: str, antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "asymmetric", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", nearest_mode: str = "floor",
    since: int,
) -> Ours | None:  # fmt: skip
    """The registry's resize of images, where whole sizes say all about the scales."""
    del cubic_coeff_a, exclude_outside, extrapolation_value
    ops = {"nearest": "resize_nearest", "linear": "resize_bilinear"}
    plain = x.dim() == 4 and x.is_floating_point() and x.numel() and not antialias and x.dtype != torch.bfloat16
    if not plain or mode not in ops or coordinate_transformation_mode not in OURS:
        return None
    _, scales, sizes = (None, *operands, None)[:3] if since < 11 else (*operands, None, None, None)[:3]
    chosen = [axis_of("Resize", axis, 4) for axis in (range(4) if axes is None else axes)]
    factors, wanted = _target(x, chosen, scales, sizes, keep_aspect_ratio_policy)
    size = tuple(dict(zip(chosen, wanted, strict=True)).get(i, n) for i, n in enumerate(x.shape))
    exact = all(x.shape[axis] * f == n for axis, f, n in zip(chosen, factors, wanted, strict=True))
    if size[:2] != tuple(x.shape[:2]) or not exact:
        return None
    attrs = {"size": sized("Resize", size, x.dtype)[2:], "mode": coordinate_transformation_mode}
    return Ours(ops[mode], {"x": x}, attrs | ({"rounding": nearest_mode} if mode == "nearest" else {}))


@kernel("Resize")
def resize_any(
    x: Tensor, *operands: Tensor | None, mode: str, antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "asymmetric", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", nearest_mode: str = "floor",
    since: int,
) -> Tensor:  # fmt: skip
    """x at evenly spaced coordinates, to given sizes or by given scales, for some axes or all."""
    roi, scales, sizes = (None, *operands, None)[:3] if since < 11 else (*operands, None, None, None)[:3]
    if mode not in ("nearest", "linear", "cubic") or (mode != "nearest" and not x.is_floating_point()):
        raise UnsupportedError(f"Resize of {x.dtype} with mode={mode!r}.")
    chosen = [axis_of("Resize", axis, x.dim()) for axis in (range(x.dim()) if axes is None else axes)]
    factors, wanted = _target(x, chosen, scales, sizes, keep_aspect_ratio_policy)
    sized("Resize", [dict(zip(chosen, wanted, strict=True)).get(i, n) for i, n in enumerate(x.shape)], x.dtype)
    corners = [float(v) for v in roi.tolist()] if roi is not None and roi.numel() else []
    if coordinate_transformation_mode == "tf_crop_and_resize" and len(corners) != 2 * len(chosen):
        raise UnsupportedError(f"Resize: roi holds {len(corners)} numbers: must be two for each of {len(chosen)} axes.")
    outside = torch.zeros((), dtype=torch.bool)
    for i, (axis, scale, count) in enumerate(zip(chosen, factors, wanted, strict=True)):
        size = x.shape[axis]
        span = (corners[i], corners[i + len(chosen)]) if corners else (0.0, 1.0)
        points = [_coordinate(coordinate_transformation_mode, j, scale, size, count, span) for j in range(count)]
        if coordinate_transformation_mode == "tf_crop_and_resize":
            away = torch.tensor([not 0 <= point <= size - 1 for point in points])
            outside = outside | away.reshape([-1 if j == axis else 1 for j in range(x.dim())])
        elif scale == 1 and count == size:
            continue
        if points == list(range(size)):
            continue
        if mode == "nearest":
            moved = _nearest(x, axis=axis, points=points, nearest_mode=nearest_mode)
            assert isinstance(moved, Tensor)
            x = moved
        else:
            x = _interpolated(
                x, axis, points, scale, mode, cubic_coeff_a, antialias=bool(antialias), exclude=bool(exclude_outside)
            )
    if not bool(outside.any()):
        return x
    return torch.where(outside, torch.tensor(extrapolation_value, dtype=x.dtype), x)


def _target(
    x: Tensor, axes: Sequence[int], scales: Tensor | None, sizes: Tensor | None, policy: str
) -> tuple[list[float], list[int]]:
    """Return the scale and the size of each axis. A policy gives all axes one scale: the smallest, or the largest."""
    given = [size for size in (sizes, scales) if size is not None and size.numel()]
    if len(given) != 1 or given[0].numel() != len(axes) or policy not in POLICIES:
        raise UnsupportedError(f"Resize: scales or sizes, one for each of {len(axes)} axes; policy={policy!r}.")
    if sizes is None or not sizes.numel():
        assert scales is not None
        factors = [float(value) for value in scales.double().tolist()]
        if min(factors, default=1.0) <= 0 or not all(map(math.isfinite, factors)):
            raise UnsupportedError(f"Resize: scales {factors}: must be above 0.")
        return factors, [math.floor(x.shape[axis] * factor) for axis, factor in zip(axes, factors, strict=True)]
    wanted = whole(sizes)
    if min(wanted, default=1) < 1:
        raise UnsupportedError(f"Resize: sizes {wanted}: must be at least 1.")
    factors = [size / x.shape[axis] for axis, size in zip(axes, wanted, strict=True)]
    if policy != "stretch":
        one = (min if policy == "not_larger" else max)(factors)
        factors = [one] * len(axes)
        wanted = [math.floor(one * x.shape[axis] + 0.5) for axis in axes]
    return factors, wanted


@mapped("Upsample")
def upsample_images(x: Tensor, given: Tensor | None = None, *, mode: str, scales: Sequence[float] = ()) -> Ours | None:
    """The registry's resize."""
    return resize(x, torch.tensor(scales) if given is None else given, mode=mode, since=10)


@kernel("Upsample")
def upsample(x: Tensor, given: Tensor | None = None, *, mode: str, scales: Sequence[float] = ()) -> Tensor:
    """Resize by scales of at least 1, the definition before version 10."""
    return resize_any(x, torch.tensor(scales) if given is None else given, mode=mode, since=10)
