"""Shape rules of Top's windowed operators and products.

Source: the rules of tpu-mlir's public shape inference. Pads are all begins, then all ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quantizer.ir.formats.shape_calls import Call, Known, broadcast, need


def _window(call: Call, kernel: Sequence[int]) -> tuple[int, Sequence[int], Sequence[int]]:
    """Return the number of spatial axes, strides and pads, checked."""
    rank, strides, pads = len(call.first) - 2, call.attrs["strides"], call.attrs["pads"]
    need(rank >= 1, f"input has shape {list(call.first)}: must be [n, c, ...]")
    need(len(kernel) == rank, f"kernel_shape {list(kernel)}: must have {rank} sizes, the input has {rank} spatial axes")
    need(len(strides) == rank and min(strides) > 0, f"strides {list(strides)}: must be {rank} positive numbers")
    need(len(pads) == 2 * rank, f"pads {list(pads)}: must be {2 * rank} numbers, all begins, then all ends")
    return rank, strides, pads


def _bias(call: Call, channels: int) -> None:
    if len(call.shapes) > 2 and not call.absent[2]:
        bias = call.shapes[2]
        need(math.prod(bias) == channels, f"bias has shape {list(bias)}: must hold {channels} numbers")


def conv(call: Call) -> list[Known]:
    """Return the shape of a convolution of [n, ic, ...] with [oc, ic / group, ...]."""
    kernel, filter_, group = call.attrs["kernel_shape"], call.shapes[1], call.attrs["group"]
    rank, strides, pads = _window(call, kernel)
    dilations = call.attrs.get("dilations") or (1,) * rank
    need(len(dilations) == rank and min(dilations) > 0, f"dilations {list(dilations)}: must be {rank} positive numbers")
    need(filter_[2:] == tuple(kernel), f"filter has shape {list(filter_)}, kernel_shape is {list(kernel)}")
    need(group > 0 and filter_[0] % group == 0, f"group {group}: must divide the {filter_[0]} filters")
    need(
        filter_[1] * group == call.first[1],
        f"filter has shape {list(filter_)} and group {group}: the input has {call.first[1]} channels",
    )
    _bias(call, filter_[0])
    if call.attrs.get("auto_pad", "NOTSET") != "NOTSET" or any(call.attrs.get("inserts") or ()):
        return [None]
    sizes = [
        (call.first[i + 2] + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    need(min(sizes) > 0, f"a window of {list(kernel)} does not fit into {list(call.first[2:])}")
    return [(call.first[0], filter_[0], *sizes)]


def deconv(call: Call) -> list[Known]:
    """Return the shape of a transposed convolution of [n, ic, ...].

    A constant filter is [oc / group, ic, ...], as in tpu-mlir's inference, or [oc, ic / group, ...], as in a
    convolution; a computed filter is [ic, oc / group, ...].
    """
    kernel, filter_ = call.attrs["kernel_shape"], call.shapes[1]
    rank, strides, pads = _window(call, kernel)
    dilations = call.attrs.get("dilations") or (1,) * rank
    more = call.attrs.get("output_padding") or (0,) * rank
    need(len(dilations) == len(more) == rank, f"dilations and output_padding must be {rank} numbers each")
    need(filter_[2:] == tuple(kernel), f"filter has shape {list(filter_)}, kernel_shape is {list(kernel)}")
    group = call.attrs["group"]
    # (axis 1, axis 0) of a constant filter
    inner, outer = filter_[1::-1] if call.weights[1] else filter_[:2]
    like_convolution = call.weights[1] and inner != call.first[1]
    fits = call.first[1] == (inner * group if like_convolution else inner)
    need(fits, f"filter has shape {list(filter_)} and group {group}: the input has {call.first[1]} channels")
    channels = outer if like_convolution else outer * group
    _bias(call, channels)
    sizes = [
        (call.first[i + 2] - 1) * strides[i] - pads[i] - pads[i + rank] + dilations[i] * (kernel[i] - 1) + more[i] + 1
        for i in range(rank)
    ]
    need(min(sizes) > 0, f"nothing is left of {list(call.first[2:])} after pads {list(pads)}")
    return [(call.first[0], channels, *sizes)]


def pool(call: Call) -> list[Known]:
    """Return the shape of a pool; an empty kernel covers all spatial axes."""
    rank = len(call.first) - 2
    kernel = call.attrs["kernel_shape"] or call.first[2:]
    if not call.attrs["kernel_shape"] and rank >= 1:
        return [(*call.first[:2], *(1,) * rank)] if call.attrs["keepdims"] else [None]
    rank, strides, pads = _window(call, kernel)
    begins, ends = pads[:rank], pads[rank:]
    rounded_up = bool(call.attrs.get("ceil_mode"))
    unsaid = call.attrs["is_adaptive"] or call.attrs.get("auto_pad", "NOTSET") != "NOTSET" or not call.attrs["keepdims"]
    if unsaid or (rounded_up and tuple(begins) != tuple(ends)):
        return [None]
    spans = [call.first[i + 2] + begins[i] + ends[i] - kernel[i] for i in range(rank)]
    need(min(spans) >= 0, f"a window of {list(kernel)} does not fit into {list(call.first[2:])}")
    sizes = [(-(-span // step) if rounded_up else span // step) + 1 for span, step in zip(spans, strides, strict=True)]
    return [(*call.first[:2], *sizes)]


def matmul(call: Call) -> list[Known]:
    """Return the shape of a matrix product; a right matrix may consume several trailing left axes."""
    left, right, attrs = call.first, call.shapes[1], call.attrs
    if attrs["left_transpose"] or attrs["output_transpose"] or attrs["hdim_is_batch"] or not left or not right:
        return [None]
    if len(right) == 1:
        need(left[-1] == right[0], f"shapes {list(left)} and {list(right)}: the inner sizes differ")
        return [left[:-1] if len(left) > 1 else None]
    inner, columns = (right[-1], right[-2]) if attrs["right_transpose"] else (right[-2], right[-1])
    # the number of axes before the last one that are flattened into it, so that its size becomes `inner`
    taken = [
        i for i in range(1, len(left)) if len(right) == 2 and left[-1] != inner and math.prod(left[-i - 1 :]) == inner
    ]
    if taken:
        left = (*left[: -taken[0] - 1], inner)
    need(left[-1] == inner, f"shapes {list(left)} and {list(right)}: the inner sizes {left[-1]} and {inner} differ")
    leading = (*broadcast([left[:-2], right[:-2]]), *left[-2:-1])
    fits = len(call.shapes) < 3 or call.absent[2] or math.prod(call.shapes[2]) % columns == 0
    need(fits, f"bias has shape {list(call.shapes[-1])}: must hold {columns} numbers")
    return [(*leading, columns) if attrs["keep_dims"] else (math.prod(leading), columns)]
