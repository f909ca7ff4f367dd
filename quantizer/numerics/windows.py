"""The windows of spatial kernels: output sizes, explicit zero padding, patches, and convolution by int64 patches."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.core.errors import GraphError

Padding = Sequence[tuple[int, int]]
"""Zeros before and after, one pair per spatial axis."""


def window_sizes(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Padding, dilation: Sequence[int]
) -> list[int]:
    """Return `(size + before + after - dilation * (kernel - 1) - 1) // stride + 1` per axis; GraphError below 1."""
    found = []
    for axis, (size, k, s, (before, after), d) in enumerate(zip(sizes, kernel, stride, padding, dilation, strict=True)):
        if before < 0 or after < 0:
            raise GraphError(f"padding ({before}, {after}) of spatial axis {axis}: must not be negative; slice.")
        reach = d * (k - 1) + 1
        if size + before + after < reach:
            raise GraphError(
                f"window of {reach} on spatial axis {axis}: the input has {size} + {before} + {after} of padding. "
                "Pad more or take a smaller kernel."
            )
        found.append((size + before + after - reach) // s + 1)
    return found


def pool_padding(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], *, ceil_mode: bool
) -> list[tuple[int, int]]:
    """Return each axis' padding (before, after) for floor((size + padding - kernel) / stride) + 1 windows.

    *padding*: all before, then all after. *ceil_mode* rounds the number of windows up, but the last window must start
    inside the input or the padding before it (torch, ONNX). Padding is added at the end for the part of a window that
    extends beyond.
    """
    rank, found = len(sizes), []
    for axis, (size, k, s) in enumerate(zip(sizes, kernel, stride, strict=True)):
        before, after = padding[axis], padding[axis + rank]
        free = size + before + after - k
        # -(-a // s) rounds up
        count = (-(-free // s) if ceil_mode else free // s) + 1
        if ceil_mode and (count - 1) * s >= size + before:
            count -= 1
        found.append((before, max(after, (count - 1) * s + k - size - before)))
    return found


def window_slices(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> list[tuple[slice, ...]]:
    """Return for each place of a 2-d window the index of the (N, C, H, W) elements that all windows have there."""
    spans = [((size - k) // s) * s + 1 for size, k, s in zip(sizes, kernel, stride, strict=True)]
    return [
        (slice(None), slice(None), slice(i, i + spans[0], stride[0]), slice(j, j + spans[1], stride[1]))
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]


def torch_padding(padding: Sequence[int]) -> list[int]:
    """Return padding (all before, then all after) as torch.nn.functional.pad takes it: pairs, last axis first."""
    rank = len(padding) // 2
    return [size for axis in reversed(range(rank)) for size in (padding[axis], padding[axis + rank])]


def padded_for_torch(x: Tensor, padding: Sequence[int]) -> tuple[Tensor, Sequence[int]]:
    """Return x with the zeros that torch's convolution cannot add, and the padding per axis that it still adds.

    *padding*: all before, then all after the spatial axes of x. torch can only add as many zeros before as after, and
    only to a tensor with elements.
    """
    rank = len(padding) // 2
    before = padding[:rank]
    if before == padding[rank:] and x.numel():
        return x, before
    return F.pad(x, torch_padding(padding)), (0,) * rank


def pad_spatial(x: Tensor, padding: Padding) -> Tensor:
    """Return (N, C, spatial...) *x* with zeros around it; spatial sizes may be 0."""
    if not any(before or after for before, after in padding):
        return x
    padded = x.new_zeros(*x.shape[:2], *(size + sum(pair) for size, pair in zip(x.shape[2:], padding, strict=True)))
    inside = padded
    for axis, (size, (before, _)) in enumerate(zip(x.shape[2:], padding, strict=True), 2):
        inside = inside.narrow(axis, before, size)
    inside.copy_(x)
    return padded


def patches(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Padding, dilation: Sequence[int]
) -> Tensor:
    """Return the windows of (N, C, spatial...) *x* as a matrix: rows (N, out...), columns (kernel..., C)."""
    out = window_sizes(x.shape[2:], kernel, stride, padding, dilation)
    # channels last, so that a window consists of contiguous pieces of C elements or more
    channels_last = [0, *range(2, x.dim()), 1]
    padded = x.new_zeros(
        x.shape[0], *(size + sum(pair) for size, pair in zip(x.shape[2:], padding, strict=True)), x.shape[1]
    )
    inside = padded
    for axis, (size, (before, _)) in enumerate(zip(x.shape[2:], padding, strict=True), 1):
        inside = inside.narrow(axis, before, size)
    inside.copy_(x.permute(channels_last))
    strides = padded.stride()
    steps = strides[1:-1]
    # a view [N, out..., kernel..., C] in which windows overlap; the reshape copies it
    windows = padded.as_strided(
        (x.shape[0], *out, *kernel, x.shape[1]),
        (
            strides[0],
            *(step * s for step, s in zip(steps, stride, strict=True)),
            *(step * d for step, d in zip(steps, dilation, strict=True)),
            strides[-1],
        ),
    )
    return windows.reshape(x.shape[0] * math.prod(out), math.prod(kernel) * x.shape[1])


def patch_weights(w: Tensor) -> Tensor:
    """Return (O, C, kernel...) weights as the matrix (O, kernel... * C) that multiplies `patches`."""
    return w.permute(0, *range(2, w.dim()), 1).reshape(w.shape[0], -1)


def from_patches(product: Tensor, batch: int, out: Sequence[int]) -> Tensor:
    """Return the (O, N * out...) product of weights and patches as (N, O, out...)."""
    stacked = product.reshape(product.shape[0], batch, *out)
    return stacked.transpose(0, 1)


def run_length(out: Sequence[int], width: int) -> int:
    """Return the elements of one of the `runs` over an output *out* of an image whose padded rows have *width*."""
    return out[-1] if len(out) == 1 else (out[-2] - 1) * width + out[-1]


def runs(x: Tensor, kernel: Sequence[int], padding: Padding, dilation: Sequence[int]) -> Tensor:
    """Return the windows of stride 1 of (N, C, spatial...) *x* as a matrix: rows (C, kernel...), columns (N, runs...).

    A run is one contiguous piece of the padded image from the first to the last window of its last two axes. Between
    two rows of the output it has the elements of windows that cross the edge of the image; `from_runs` leaves them out.
    """
    out = window_sizes(x.shape[2:], kernel, [1] * len(kernel), padding, dilation)
    padded = pad_spatial(x, padding).contiguous()
    strides = padded.stride()
    length = run_length(out, padded.shape[-1])
    # a view [C, kernel..., N, out[:-2]..., run] in which windows overlap; the reshape copies it
    windows = padded.as_strided(
        (x.shape[1], *kernel, x.shape[0], *out[:-2], length),
        (strides[1], *(step * d for step, d in zip(strides[2:], dilation, strict=True)), strides[0], *strides[2:-2], 1),
    )
    return windows.reshape(x.shape[1] * math.prod(kernel), -1)


def from_runs(product: Tensor, batch: int, out: Sequence[int], width: int) -> Tensor:
    """Return the (O, N * runs...) product of weights and `runs` as (N, O, out...), a view of it."""
    lead, length = out[:-2], run_length(out, width)
    rows = (out[-2], out[-1]) if len(out) > 1 else (out[-1],)
    stacked = product.reshape(product.shape[0], batch, *lead, length).transpose(0, 1)
    # steps of one padded row leave out the windows that cross the edge of the image
    return stacked.as_strided((*stacked.shape[:-1], *rows), (*stacked.stride()[:-1], *(width, 1)[-len(rows) :]))


def int64_conv(
    x: Tensor, w: Tensor, stride: Sequence[int], padding: Padding, dilation: Sequence[int], groups: int
) -> Tensor:
    """Return the convolution as int64 matrix products over patches, one per group: exact, slow, any width."""
    kernel = list(w.shape[2:])
    out = window_sizes(x.shape[2:], kernel, stride, padding, dilation)
    parts = []
    for part, weights in zip(x.to(torch.int64).chunk(groups, 1), w.to(torch.int64).chunk(groups, 0), strict=True):
        rows = patches(part, kernel, stride, padding, dilation)
        parts.append(from_patches(patch_weights(weights) @ rows.t(), x.shape[0], out))
    return torch.cat(parts, 1)


def channelwise_conv(x: Tensor, w: Tensor, stride: Sequence[int], padding: Padding, dilation: Sequence[int]) -> Tensor:
    """Return the convolution of each channel with its own filters as int64: all channels at each place of a window."""
    kernel, channels = w.shape[2:], x.shape[1]
    out = window_sizes(x.shape[2:], kernel, stride, padding, dilation)
    # [N, C, 1, spatial...] times, for each place of a window, [C, filters of a channel, 1...]
    padded = pad_spatial(x.to(torch.int64), padding).unsqueeze(2)
    filters = w.to(torch.int64).reshape(channels, -1, kernel.numel(), *(1 for _ in kernel)).unbind(2)
    products, every = [], (slice(None),) * 3
    for place, weights in zip(itertools.product(*map(range, kernel)), filters, strict=True):
        axes = zip(place, out, stride, dilation, strict=True)
        cut = [slice(t * d, t * d + (size - 1) * s + 1, s) for t, size, s, d in axes]
        products.append(padded[(*every, *cut)] * weights)
    return functools.reduce(torch.Tensor.add_, products).flatten(1, 2)


def spread(x: Tensor, stride: Sequence[int]) -> Tensor:
    """Return *x* with `stride - 1` zeros between spatial neighbours, as a transposed convolution sees it."""
    sizes = [max(0, (size - 1) * s + 1) for size, s in zip(x.shape[2:], stride, strict=True)]
    found = x.new_zeros(*x.shape[:2], *sizes)
    found[(slice(None), slice(None), *(slice(None, None, s) for s in stride))] = x
    return found


def flip_weights(w: Tensor, groups: int) -> Tensor:
    """Convert (C, O/g, kernel...) weights of a transposed convolution to the weights of an equivalent convolution."""
    # [groups, C/groups, O/groups, kernel...] -> [groups, O/groups, C/groups, kernel...]
    per_group = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).transpose(1, 2)
    return per_group.reshape(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:]).flip(*range(2, w.dim()))
