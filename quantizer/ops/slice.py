"""Takes every stride-th element between two indices along each axis."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops import operator

Numbers = tuple[int, ...]


@operator("slice")
def reference(x: Tensor, *, begin: Numbers, end: Numbers, strides: Numbers) -> Tensor:
    """Take along each axis the indices that begin:end:stride means in Python."""
    for axis, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        x = x.index_select(axis, torch.tensor(range(x.shape[axis])[first:last:step]))
    return x


@operator("slice")
def quantized(x: Tensor, *, parameters: Parameters, begin: Numbers, end: Numbers, strides: Numbers) -> Tensor:
    """Move codes; the output shares the input's parameters. A negative stride reads the reversed tensor forwards."""
    box = []
    turned = [axis for axis, step in enumerate(strides) if step < 0]
    for size, first, last, step in zip(x.shape, begin, end, strides, strict=True):
        low, high = (place + size if place < 0 else place for place in (first, last))
        if step < 0:
            # place p of an axis is place size - 1 - p of the reversed one
            low, high = size - 1 - low, size - 1 - high
        # torch slices clamp at the end by themselves
        box.append(slice(max(low, 0), max(high, 0), abs(step)))
    return x.flip(turned)[tuple(box)].contiguous()
