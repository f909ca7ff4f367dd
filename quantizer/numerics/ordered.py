"""Float32 matrix products and transposed convolutions with a fixed order of additions, the same on every processor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.numerics.fused import multiply_add


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of a [..., m, k] and b [..., k, n]: each product is rounded, then added in order along k.

    Torch adds batches of small float32 matrices in this order.
    """
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # torch.broadcast_shapes imports sympy, for a second
    found = a.new_zeros((*leading, a.shape[-2], b.shape[-1]))
    for place in range(a.shape[-1]):
        found = found + a[..., place : place + 1] * b[..., place : place + 1, :]
    return found


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the transposed convolution of x [n, c, ...] by weight [c, o / groups, ...]; *padding* crops both ends.

    For each position in the kernel, fused multiply-adds sum the products over channels; then the positions are added in
    order, and the bias last. The result of a vectorized library with AVX-512.
    """
    each = x.shape[1] // groups
    made = [_of_group(x[:, i : i + each], weight[i : i + each]) for i in range(0, x.shape[1], each)]
    kernel = weight.shape[2:]
    sizes = [
        (n - 1) * s + d * (k - 1) + 1 + extra
        for n, s, d, k, extra in zip(x.shape[2:], stride, dilation, kernel, output_padding, strict=True)
    ]
    found = x.new_zeros((x.shape[0], weight.shape[1] * groups, *sizes))
    sums = torch.cat(made, dim=1)
    for place in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(i * d, i * d + (n - 1) * s + 1, s)
            for i, d, n, s in zip(place, dilation, x.shape[2:], stride, strict=True)
        )
        target: Any = (slice(None), slice(None), *window)
        source: Any = (slice(None), slice(None), *place)
        found[target] += sums[source]
    for axis, (crop, size) in enumerate(zip(padding, sizes, strict=True), start=2):
        found = found.narrow(axis, crop, size - 2 * crop)
    return found if bias is None else found + bias.reshape(-1, *[1] * len(kernel))


def _of_group(x: Tensor, weight: Tensor) -> Tensor:
    """Return [n, o, *kernel, *spatial]: the contribution of each element at each position in the kernel."""
    spatial, kernel = x.dim() - 2, weight.shape[2:]
    found = x.new_zeros((x.shape[0], weight.shape[1], *kernel, *x.shape[2:]))
    for channel in range(x.shape[1]):
        # [n, 1, 1..., spatial...] times [1, o, kernel..., 1...]
        values = x[:, channel].reshape(x.shape[0], 1, *[1] * spatial, *x.shape[2:])
        found = multiply_add(values, weight[channel].reshape(1, -1, *kernel, *[1] * spatial), found)
    return found
