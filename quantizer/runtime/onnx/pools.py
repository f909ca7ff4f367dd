"""Pools: maxima and means over windows or over all spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core import shape_functions
from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import Ours, kernel, mapped, sized, whole
from quantizer.runtime.onnx.products import windows

Sizes = Sequence[int]


@mapped("MaxPool")
def max_pool(
    x: Tensor,
    *,
    auto_pad: str,
    kernel_shape: Sizes,
    ceil_mode: int = 0,
    storage_order: int = 0,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
    made: int,
) -> Ours | None:
    """Map to the registry's max_pool2d, if no index is requested and the window is dense."""
    _pools("MaxPool", x)
    stride, holes, padding = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, cut=True)
    # the registry has no indices and no dilation
    if made > 1 or set(holes) != {1} or storage_order not in (0, 1):
        return None
    return _pool2d("max_pool2d", x, kernel_shape, stride, padding, {"ceil_mode": bool(ceil_mode)})


@mapped("AveragePool")
def avg_pool(
    x: Tensor,
    *,
    auto_pad: str,
    kernel_shape: Sizes,
    ceil_mode: int = 0,
    count_include_pad: int,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Ours | None:
    """Map to the registry's avg_pool2d, unless a window beyond the padding would count the part outside."""
    _pools("AveragePool", x)
    stride, holes, padding = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, cut=True)
    # without padding both ways of counting agree
    include = bool(count_include_pad) and any(padding)
    if set(holes) != {1} or (ceil_mode and include):
        return None
    attrs = {"ceil_mode": bool(ceil_mode), "count_include_pad": include}
    return _pool2d("avg_pool2d", x, kernel_shape, stride, padding, attrs)


def _pools(op: str, x: Tensor) -> None:
    if x.dim() < 3:
        raise UnsupportedError(f"{op} of shape {list(x.shape)}: must have at least one spatial axis.")


def _pool2d(op: str, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, attrs: dict[str, Any]) -> Ours | None:
    sides = zip(x.shape[2:], kernel, padding[:2], padding[2:], strict=False)
    if x.dim() != 4 or not x.is_floating_point() or not x.numel():
        return None
    if any(max(a, b) >= k or min(a, b) < 0 or k > size + a + b for size, k, a, b in sides):
        return None
    sizes = {"kernel": tuple(kernel), "stride": tuple(stride), "padding": tuple(padding)}
    return Ours(op, {"x": x}, sizes | attrs)


def _count(size: int, window: int, step: int, before: int, after: int, *, ceil: bool) -> int:
    """Return the number of windows: 0 if the window is exactly one step longer than the padded size.

    Source: ONNX's shape inference. If the window is longer by less than a step, ONNX Runtime divides towards zero and
    computes one window, and the reference rounds down to none: such pools are refused.
    """
    count = shape_functions.windows(size, window, step, before, after, ceil)
    # shorter by a part of a step: the two implementations disagree
    torn = not ceil and count == 0 and (window - size - before - after) % step
    if count < 0 or torn:
        raise UnsupportedError(
            f"a window of {window} does not fit: must be {size + before + after} or less, the padded size."
        )
    return count


def _gathered(x: Tensor, kernel: Sizes, steps: Sizes, holes: Sizes, counts: Sizes, pads: Sizes, fill: float) -> Tensor:
    """Return the windows of x [n, c, spatial]: [n, c, counts, places], with *fill* at places outside of x."""
    rank = len(kernel)
    if 0 in counts:
        return x.new_zeros((*x.shape[:2], *counts, math.prod(kernel)))
    ends = [
        (count - 1) * step + (k - 1) * hole + 1
        for count, step, k, hole in zip(counts, steps, kernel, holes, strict=True)
    ]
    # behind, as far as the last window reaches, with ceil_mode beyond the padding
    around = [(pads[i], max(0, ends[i] - x.shape[2 + i] - pads[i])) for i in range(rank)]
    sized("a pool", (*x.shape[:2], *counts, math.prod(kernel)), x.dtype)
    y = F.pad(x, [size for pair in reversed(around) for size in pair], value=fill)
    for i in range(rank):
        y = y.narrow(2 + i, 0, ends[i])
    for i in range(rank):
        # whole windows first, then only every `hole`-th element of them
        y = y.unfold(2 + i, (kernel[i] - 1) * holes[i] + 1, steps[i])[..., :: holes[i]]
    return y.reshape(*y.shape[: 2 + rank], math.prod(y.shape[2 + rank :]))


@kernel("MaxPool")
def max_pool_with_indices(
    x: Tensor,
    *,
    auto_pad: str,
    kernel_shape: Sizes,
    ceil_mode: int = 0,
    storage_order: int = 0,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
    made: int,
) -> Tensor | tuple[Tensor, ...]:
    """Return the largest element of each window and its index in x, by rows or (storage_order 1) by columns."""
    steps, holes, padding = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, cut=True)
    rank = len(kernel_shape)
    counts = [
        _count(size, (k - 1) * h + 1, s, a, b, ceil=bool(ceil_mode))
        for size, k, h, s, a, b in zip(x.shape[2:], kernel_shape, holes, steps, padding, padding[rank:], strict=False)
    ]
    least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    values = _gathered(x.float() if x.dtype == torch.float16 else x, kernel_shape, steps, holes, counts, padding, least)
    best = values.amax(dim=-1).to(x.dtype)
    if made == 1:
        return best
    places = torch.arange(math.prod(x.shape[2:]), dtype=torch.float64).reshape(1, 1, *x.shape[2:])
    if storage_order:
        order = list(reversed(range(2, 2 + rank)))
        flat = torch.arange(math.prod(x.shape[2:]), dtype=torch.float64)
        places = flat.reshape(1, 1, *[x.shape[i] for i in order]).permute(
            0, 1, *[order.index(2 + i) + 2 for i in range(rank)]
        )
    where = _gathered(places, kernel_shape, steps, holes, counts, padding, -1.0).long()
    masked = torch.where(where >= 0, values.double(), -math.inf)
    picked = torch.gather(where.expand_as(values), -1, masked.argmax(dim=-1, keepdim=True)).squeeze(-1)
    first = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * rank) * math.prod(x.shape[2:])
    return best, picked + first


@kernel("AveragePool")
def avg_pool_of_any_rank(
    x: Tensor,
    *,
    auto_pad: str,
    kernel_shape: Sizes,
    ceil_mode: int = 0,
    count_include_pad: int,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Return the mean of each window: over places in x, with count_include_pad also in the padding, never beyond it."""
    steps, holes, padding = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, cut=True)
    rank = len(kernel_shape)
    counts = [
        _count(size, (k - 1) * h + 1, s, a, b, ceil=bool(ceil_mode))
        for size, k, h, s, a, b in zip(x.shape[2:], kernel_shape, holes, steps, padding, padding[rank:], strict=False)
    ]
    sums = _gathered(x, kernel_shape, steps, holes, counts, padding, 0.0).sum(dim=-1)
    # sums of ones count the places that a mean is over
    inside = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype)
    around = padding
    if count_include_pad:
        # the padding counts, places beyond it do not
        inside = F.pad(inside, [padding[i + side * rank] for i in reversed(range(rank)) for side in (0, 1)], value=1.0)
        around = (0,) * (2 * rank)
    return sums / _gathered(inside, kernel_shape, steps, holes, counts, around, 0.0).sum(dim=-1)


@kernel("LpPool")
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str,
    kernel_shape: Sizes,
    p: int,
    ceil_mode: int = 0,
    dilations: Sizes | None = None,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Return the p-th root of the sum of p-th powers over each window; the padding counts as zeros."""
    _pools("LpPool", x)
    steps, holes, padding = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, cut=True)
    rank = len(kernel_shape)
    counts = [
        _count(size, (k - 1) * h + 1, s, a, b, ceil=bool(ceil_mode))
        for size, k, h, s, a, b in zip(x.shape[2:], kernel_shape, holes, steps, padding, padding[rank:], strict=False)
    ]
    powers = _gathered(x.abs() ** p, kernel_shape, steps, holes, counts, padding, 0.0)
    return powers.sum(dim=-1) ** (1 / p)


@mapped("GlobalAveragePool")
def global_avg_pool(x: Tensor) -> Ours | None:
    """Map to the registry's global_avg_pool2d, of images."""
    return Ours("global_avg_pool2d", {"x": x}, {}) if x.dim() == 4 and x.numel() else None


@kernel("GlobalAveragePool")
def global_avg_pool_of_any_rank(x: Tensor) -> Tensor:
    """Return the mean over all spatial axes."""
    _pools("GlobalAveragePool", x)
    return x.mean(dim=tuple(range(2, x.dim())), keepdim=True)


@mapped("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Ours | None:
    """Map to the registry's global_max_pool2d for images; for other ranks its reduce_max over all spatial axes."""
    fits = x.dim() > 2 and x.is_floating_point() and x.numel()
    if fits and x.dim() == 4:
        return Ours("global_max_pool2d", {"x": x}, {})
    return Ours("reduce_max", {"x": x}, {"axes": tuple(range(2, x.dim())), "keepdims": True}) if fits else None


@kernel("GlobalMaxPool")
def global_max_pool_of_integers(x: Tensor) -> Tensor:
    """Return the maximum over all spatial axes."""
    _pools("GlobalMaxPool", x)
    return x.amax(dim=tuple(range(2, x.dim())), keepdim=True)


@kernel("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int) -> Tensor:
    """Return the p-th root of the sum of p-th powers over all spatial axes."""
    _pools("GlobalLpPool", x)
    return (x.abs() ** p).sum(dim=tuple(range(2, x.dim())), keepdim=True) ** (1 / p)


@kernel("MaxUnpool")
def max_unpool(
    x: Tensor,
    places: Tensor,
    shape: Tensor | None = None,
    *,
    kernel_shape: Sizes,
    pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Tensor:
    """Return zeros with each element of x where a max pool found it; places are indices of the pool's operand."""
    rank = x.dim() - 2
    around, steps = list(pads or [0] * (2 * rank)), list(strides or [1] * rank)
    if places.shape != x.shape or not {len(kernel_shape), len(around) // 2, len(steps)} == {rank}:
        raise UnsupportedError(
            f"MaxUnpool of {list(x.shape)} at {list(places.shape)}, {kernel_shape=}, {pads=}, {strides=}: the shapes "
            f"must be equal, with {rank} numbers in kernel_shape and strides and {2 * rank} in pads."
        )
    sizes = [
        (n - 1) * step - around[i] - around[i + rank] + k
        for i, (n, step, k) in enumerate(zip(x.shape[2:], steps, kernel_shape, strict=True))
    ]
    made = sized("MaxUnpool", (*x.shape[:2], *sizes), x.dtype)
    if shape is not None and tuple(whole(shape)) != made:
        raise UnsupportedError(
            f"MaxUnpool: output_shape={whole(shape)}: must be {list(made)}. For any other shape ONNX's "
            "tests and ONNX Runtime number the elements differently."
        )
    where = places.reshape(-1)
    if where.numel() and not 0 <= int(where.min()) <= int(where.max()) < math.prod(made):
        raise UnsupportedError(f"MaxUnpool: every index must lie in [0, {math.prod(made) - 1}].")
    y = x.new_zeros(math.prod(made))
    y[where] = x.reshape(-1)
    return y.reshape(made)
