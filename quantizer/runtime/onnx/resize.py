"""Resize: interpolation axis by axis.

Source of coordinates and weights: the ONNX operator Resize and the formulas of its tests. ONNX does not define the
rounding of a linear resize of integers. Here it follows ONNX Runtime's function for the CPU; its rules were found by
comparison.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import Ours, axis_of, kernel, mapped, one_of, sized, whole
from quantizer.runtime.onnx.layout import moves
from quantizer.runtime.onnx.resize_antialias import antialiased

ROUNDED = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}
POLICIES = ("stretch", "not_larger", "not_smaller")
CROP = "tf_crop_and_resize"
INTEGER_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    CROP,
)
"""The supported coordinate_transformation_modes of a linear Resize of integers."""


def _coordinate(mode: str, place: int, scale: float, size: int, count: int, roi: tuple[float, float]) -> float:
    """Return where the *place*-th of *count* outputs lies among *size* inputs."""
    # the length of the result as a real number; *count* is the rounded one
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
    raise UnsupportedError(f"Resize: coordinate_transformation_mode={mode!r}: must be a mode of ONNX.")


def _cubic(distance: float, a: float) -> float:
    """Return the weight of a neighbour by Keys' cubic convolution with constant *a*."""
    d = abs(distance)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def _weights(mode: str, ratio: float, scale: float, a: float, *, antialias: bool) -> tuple[int, list[float]]:
    """Return where the neighbours of a coordinate start, counted from its floor, and their weights."""
    reach = 1 if mode == "linear" else 2
    # a reduction stretches the filter, so that every input has weight
    shrink = min(scale, 1.0) if antialias else 1.0
    start = math.floor(-reach / shrink) + 1
    # symmetric around the coordinate between places 0 and 1
    places = range(start, 2 - start if mode == "cubic" else start + 2 - 2 * start)
    distances = [shrink * (place - ratio) for place in places]
    raw = [max(0.0, 1 - abs(d)) if mode == "linear" else _cubic(d, a) for d in distances]
    total = sum(raw) if antialias else 1.0
    return start, [weight / total for weight in raw]


def _interpolated(
    x: Tensor, axis: int, points: Sequence[float], scale: float, mode: str, a: float, *, antialias: bool, exclude: bool
) -> Tensor:
    """Return x interpolated at *points* of an axis.

    Its edge is repeated, but with *exclude* places outside have no weight.
    """
    size = x.shape[axis]
    if not points:
        return x.narrow(axis, 0, 0)
    rows: list[list[float]] = []
    places: list[list[int]] = []
    for point in points:
        base = math.floor(point)
        ratio = point - base
        # the standard's formulas put a whole coordinate at the right end of its interval
        if ratio == 0:
            base, ratio = base - 1, 1.0
        start, weights = _weights(mode, ratio, scale, a, antialias=antialias)
        at = [base + start + k for k in range(len(weights))]
        if exclude:
            weights = [w if 0 <= p < size else 0.0 for w, p in zip(weights, at, strict=True)]
            total = sum(weights)
            # the weights of places inside must still add up to 1
            weights = [w / total for w in weights]
        rows.append(weights)
        # places outside repeat the edge
        places.append([min(max(p, 0), size - 1) for p in at])
    # both have the shape [points, neighbours]
    factors, indices = torch.tensor(rows, dtype=torch.float64), torch.tensor(places)
    along = [-1 if i == axis else 1 for i in range(x.dim())]
    total_of = torch.zeros([len(points) if i == axis else n for i, n in enumerate(x.shape)], dtype=x.dtype)
    for k in range(factors.shape[1]):
        total_of = total_of + x.index_select(axis, indices[:, k]) * factors[:, k].reshape(along).to(x.dtype)
    return total_of


INTEGERS = (torch.uint8, torch.int8, torch.int32)
"""Types of integers for which ONNX Runtime has a linear resize."""


Spans = Sequence[tuple[float, float]]
"""The part of each axis that is kept, as fractions from 0 to 1."""


def _of_integers(
    x: Tensor, target: Sequence[int], scales: Sequence[float], mode: str, spans: Spans, outside: float
) -> Tensor:
    """Return the linear resize of integers by ONNX Runtime's rules.

    Products of values and weights are summed in float32, the first axis slowest, and the sum loses its fraction.
    For an 8-bit image with channels last, coordinates are truncated to multiples of 2^-10, and the sum is in integers.
    """
    if list(x.shape) == list(target):
        return x
    axes = _resized_axes(scales)
    # the shape for which ONNX Runtime has its own kernel: [n, h, w, c]
    fixed = axes == [1, 2] and x.dim() == 4 and x.dtype != torch.int32
    points = [_points(mode, scales[axis], x.shape[axis], target[axis], spans[axis]) for axis in axes]
    around = [_neighbours(point, x.shape[axis], fixed=fixed) for axis, point in zip(axes, points, strict=True)]
    wide = x.to(torch.int64 if fixed else torch.float32)
    total = None
    for ends in itertools.product((0, 1), repeat=len(axes)):
        values, weight = wide, None
        for axis, end, (places, _) in zip(axes, ends, around, strict=True):
            values = values.index_select(axis, places[end])
        # ONNX Runtime multiplies weights from the last axis on, which decides the rounding of float32
        for axis, end, (_, weights) in reversed(list(zip(axes, ends, around, strict=True))):
            own = weights[end].reshape([-1 if i == axis else 1 for i in range(x.dim())])
            weight = own if weight is None else weight * own
        assert weight is not None
        total = weight * values if total is None else total + weight * values
    assert total is not None
    # two weights in units of 2**-10 each
    made = (total.div(UNIT * UNIT, rounding_mode="trunc") if fixed else total.trunc()).to(x.dtype)
    if mode != CROP:
        return made
    for axis, point in zip(axes, points, strict=True):
        away = (point < 0) | (point > x.shape[axis] - 1)
        made = made.masked_fill(away.reshape([-1 if i == axis else 1 for i in range(x.dim())]), math.trunc(outside))
    return made


UNIT = 1 << 10
"""Steps between two neighbours in integer coordinates."""


def _resized_axes(scales: Sequence[float]) -> list[int]:
    """Return the axes that a linear resize of integers goes along, whether or not their scale is 1."""
    count = len(scales)
    if count in (2, 4) and all(scale == 1 for scale in scales[:-2]):
        return [count - 2, count - 1]
    if count == 4 and scales[0] == scales[3] == 1:
        return [1, 2]
    if count in (3, 5) and all(scale == 1 for scale in scales[:-3]):
        return [count - 3, count - 2, count - 1]
    raise UnsupportedError(
        f"Resize of integers by {list(scales)}: must change two axes of an image, or three of a volume."
    )


def _neighbours(points: Tensor, size: int, *, fixed: bool) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the two neighbours of each coordinate of an axis, and their weights."""
    point = points.clamp(0, size - 1)
    lower = point.to(torch.int64)
    upper = (lower + 1).clamp(max=size - 1)
    # integer coordinates are truncated
    at, one = ((point * UNIT).to(torch.int64), UNIT) if fixed else (point, 1)
    same = lower == upper
    away, back = ((at - end * one).abs() for end in (lower, upper))
    # at the edge both neighbours are one element: half a weight each
    middle = torch.tensor(one / 2).to(at.dtype)
    return (lower, upper), (torch.where(same, middle, back), torch.where(same, middle, away))


def _axis_points(
    mode: str, scales: Sequence[float], shape: Sequence[int], target: Sequence[int], spans: Spans, axis: int
) -> Tensor:
    if mode == CROP:
        raise UnsupportedError(f"Resize of integers with antialias=1 and {CROP}: must be one of the two.")
    return _points(mode, scales[axis], shape[axis], target[axis], spans[axis])


def _points(mode: str, scale: float, size: int, count: int, span: tuple[float, float]) -> Tensor:
    """Return the coordinates of an axis, in float32 but for one mode."""
    place, half = torch.arange(count, dtype=torch.float32), 0.5
    step = torch.tensor(scale, dtype=torch.float32)
    one_of("Resize of integers", "coordinate_transformation_mode", mode, INTEGER_COORDINATES)
    if step == 1:
        return place
    if mode == "asymmetric":
        return place / step
    if mode == "tf_half_pixel_for_nn":
        return (place + half) / step
    if mode == "half_pixel_symmetric":
        # the one mode that ONNX Runtime computes in float64
        moved = (size / 2 * (1 - torch.tensor(float(count)) / (step * size))).double()
        return (moved + (place.double() + half) / step.double() - half).float()
    if mode == CROP:
        low, high = torch.tensor(span, dtype=torch.float32)
        if count == 1:
            return torch.stack([half * (low + high) * (size - 1)])
        return torch.add(low * (size - 1), place * (high - low) * (size - 1) / (count - 1))
    if count == 1 and mode != "half_pixel":
        return place
    if mode == "align_corners":
        return place * (size - 1) / (count - 1)
    return (place + half) / step - half


@moves
def _nearest(x: Tensor, *, axis: int, points: Sequence[float], nearest_mode: str) -> Tensor:
    one_of("Resize", "nearest_mode", nearest_mode, ROUNDED)
    rounded = [min(max(ROUNDED[nearest_mode](point), 0), x.shape[axis] - 1) for point in points]
    return x.index_select(axis, torch.tensor(rounded, dtype=torch.int64))


OURS = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
"""Coordinate modes that the registry's operators also have."""


@mapped("Resize")
def resize(
    x: Tensor,
    *operands: Tensor | None,
    mode: str,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "asymmetric",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "floor",
    since: int,
) -> Ours | None:
    """Map to the registry's resize of images, if the sizes determine the scales."""
    del cubic_coeff_a, exclude_outside, extrapolation_value
    ops = {"nearest": "resize_nearest", "linear": "resize_bilinear"}
    plain = x.dim() == 4 and x.is_floating_point() and x.numel() and not antialias and x.dtype != torch.bfloat16
    if not plain or mode not in ops or coordinate_transformation_mode not in OURS:
        return None
    _, scales, sizes = (None, *operands, None)[:3] if since < 11 else (*operands, None, None, None)[:3]
    chosen = [axis_of("Resize", axis, 4) for axis in (range(4) if axes is None else axes)]
    factors, wanted = _target(x, chosen, scales, sizes, keep_aspect_ratio_policy)
    size = tuple(dict(zip(chosen, wanted, strict=True)).get(i, n) for i, n in enumerate(x.shape))
    # with a scale that is not the ratio of sizes, coordinates differ from the registry's
    exact = all(x.shape[axis] * f == n for axis, f, n in zip(chosen, factors, wanted, strict=True))
    if size[:2] != tuple(x.shape[:2]) or not exact:
        return None
    attrs = {"size": sized("Resize", size, x.dtype)[2:], "mode": coordinate_transformation_mode}
    return Ours(ops[mode], {"x": x}, attrs | ({"rounding": nearest_mode} if mode == "nearest" else {}))


@kernel("Resize", widens=True)
def resize_any(
    x: Tensor,
    *operands: Tensor | None,
    mode: str,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "asymmetric",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "floor",
    since: int,
) -> Tensor:
    """Return x sampled at evenly spaced coordinates; *sizes* or *scales* give the result's shape along *axes*."""
    roi, scales, sizes = (None, *operands, None)[:3] if since < 11 else (*operands, None, None, None)[:3]
    integers = mode == "linear" and x.dtype in INTEGERS and bool(antialias >= exclude_outside)
    one_of("Resize", "mode", mode, ("nearest", "linear", "cubic"))
    if mode != "nearest" and not x.is_floating_point() and not integers:
        raise UnsupportedError(
            f"Resize of {x.dtype} with mode={mode!r}, {antialias=}, {exclude_outside=}: must be nearest, or linear, "
            "and exclude_outside needs antialias."
        )
    chosen = [axis_of("Resize", axis, x.dim()) for axis in (range(x.dim()) if axes is None else axes)]
    factors, wanted = _target(x, chosen, scales, sizes, keep_aspect_ratio_policy)
    target = [dict(zip(chosen, wanted, strict=True)).get(i, n) for i, n in enumerate(x.shape)]
    sized("Resize", target, x.dtype)
    spans = _spans(roi, chosen, x.dim(), coordinate_transformation_mode)
    if integers:
        scale_of = dict(zip(chosen, factors, strict=True))
        # axes that are not named keep their size
        every = [scale_of.get(i, 1.0) for i in range(x.dim())]
        if not antialias or list(x.shape) == target:
            return _of_integers(x, target, every, coordinate_transformation_mode, spans, extrapolation_value)
        place = partial(_axis_points, coordinate_transformation_mode, every, x.shape, target, spans)
        return antialiased(x, target, every, _resized_axes(every), place, exclude=bool(exclude_outside))
    outside = torch.zeros((), dtype=torch.bool)
    for axis, scale, count in zip(chosen, factors, wanted, strict=True):
        size, mode_of_place = x.shape[axis], coordinate_transformation_mode
        points = [_coordinate(mode_of_place, j, scale, size, count, spans[axis]) for j in range(count)]
        if mode_of_place == CROP:
            away = torch.tensor([not 0 <= point <= size - 1 for point in points], dtype=torch.bool)
            outside = outside | away.reshape([-1 if j == axis else 1 for j in range(x.dim())])
        elif scale == 1 and count == size:
            continue
        # each output is one input: nothing to compute
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


def _spans(roi: Tensor | None, axes: Sequence[int], rank: int, mode: str) -> list[tuple[float, float]]:
    """Return the part of each axis that is kept; all of an axis that is not resized."""
    corners = [float(v) for v in roi.tolist()] if roi is not None and roi.numel() else []
    if mode == CROP and len(corners) != 2 * len(axes):
        raise UnsupportedError(f"Resize: roi holds {len(corners)} numbers: must be two for each of {len(axes)} axes.")
    found = [(0.0, 1.0)] * rank
    if len(corners) == 2 * len(axes):
        for i, axis in enumerate(axes):
            found[axis] = (corners[i], corners[i + len(axes)])
    return found


def _target(
    x: Tensor, axes: Sequence[int], scales: Tensor | None, sizes: Tensor | None, policy: str
) -> tuple[list[float], list[int]]:
    """Return the scale and the size of each axis. A policy gives all axes one scale: the smallest, or the largest."""
    given = [size for size in (sizes, scales) if size is not None and size.numel()]
    one_of("Resize", "keep_aspect_ratio_policy", policy, POLICIES)
    if len(given) != 1 or given[0].numel() != len(axes):
        raise UnsupportedError(f"Resize: must have scales or sizes, not both, with one for each of {len(axes)} axes.")
    if sizes is None or not sizes.numel():
        assert scales is not None
        factors = [float(value) for value in scales.double().tolist()]
        if min(factors, default=1.0) <= 0 or not all(map(math.isfinite, factors)):
            raise UnsupportedError(f"Resize: scales {factors}: must be above 0.")
        # A float32 product, as in ONNX's shape inference: 5 times 2.6 gives 13; float32(2.6) times 5 is a little less.
        lengths = torch.tensor([x.shape[axis] for axis in axes], dtype=torch.float32)
        return factors, (lengths * scales.float()).floor().long().tolist()
    wanted = whole(sizes)
    if min(wanted, default=1) < 1:
        raise UnsupportedError(f"Resize: sizes {wanted}: must be at least 1.")
    factors = [size / x.shape[axis] for axis, size in zip(axes, wanted, strict=True)]
    if policy != "stretch":
        one = (min if policy == "not_larger" else max)(factors)
        factors = [one] * len(axes)
        # half up, as the standard's round_int
        wanted = [math.floor(one * x.shape[axis] + 0.5) for axis in axes]
    return factors, wanted


@mapped("Upsample")
def upsample_images(x: Tensor, given: Tensor | None = None, *, mode: str, scales: Sequence[float] = ()) -> Ours | None:
    """Map to the registry's resize."""
    return resize(x, torch.tensor(scales) if given is None else given, mode=mode, since=10)


@kernel("Upsample", widens=True)
def upsample(x: Tensor, given: Tensor | None = None, *, mode: str, scales: Sequence[float] = ()) -> Tensor:
    """Resize by scales of at least 1, as Upsample is defined before version 10."""
    return resize_any(x, torch.tensor(scales) if given is None else given, mode=mode, since=10)
