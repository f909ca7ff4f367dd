"""Convolutions, transposed convolutions, fully connected layers and matrix products as TOSA operators with RESCALE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tosa_serializer as ts
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.platforms.tosa.graph import GLOBAL, INT8, INT16, INT32, INT48, TosaGraph, Value, kind_of
from quantizer.runtime.engines.frames import Array
from quantizer.runtime.engines.protocol import Call

Codes = Mapping[str, Tensor]
LAST: Mapping[int, tuple[int, ...]] = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
"""Rank -> the axes of channels-last data in the order (n, c, spatial ...)."""
FIRST: Mapping[int, tuple[int, ...]] = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""Rank -> the axes of channels-first data in the order (n, spatial ..., c)."""


@dataclass(frozen=True)
class Filters:
    """Weights (int4 if they have 4 bits) and bias in TOSA's order, and the parameters of their input."""

    weight: Array
    bias: Array
    bits: int
    params: QParams

    def operands(self, graph: TosaGraph, value: Value) -> list[Value]:
        """Return input, weights, bias and the two zero points, as every convolution takes them."""
        # the specification lists supported pairs of types for each operator
        if self.bits > 8 or (self.bits <= 4 and value.kind != INT8):
            raise RefusedError(
                f"TOSA multiplies int8 with weights of int4 and int8, int16 with int8, "
                f"not {value.kind.name} with {self.bits} bits"
            )
        kind = ts.DType.INT4 if self.bits <= 4 else INT8
        # TOSA's weights have a zero point too; ours are symmetric
        zeros = graph.const([int(self.params.zero_point)], value.kind), graph.const([0], kind)
        return [value, graph.const(self.weight, kind), graph.const(self.bias, accumulator(value)), *zeros]


def accumulator(value: Value) -> Any:
    """Return the format of sums of products with *value*."""
    return INT48 if value.kind == INT16 else INT32


def convolve(
    call: Call, codes: Codes, parameters: Parameters, *, sums: bool = False
) -> tuple[TosaGraph, Value, Sequence[int]]:
    """Return the graph of a convolution of any kind, its result (or its sums), and the permutation of the result.

    A 1-d convolution becomes a 2-d one of unit height, as in TensorFlow Lite's and PyTorch's converters; each group
    becomes a convolution, and their results are joined after RESCALE. Filters of a dilated transposed one have zeros
    between taps.
    """
    op, attrs = call.spec.op, dict[str, Any](call.attrs)
    graph, params = TosaGraph(), parameters.inputs["x"]
    x, weight = codes["x"].numpy(), codes["weight"].numpy()
    if op == "conv1d":
        x, weight = x[:, :, None, :], weight[:, :, None, :]
        (left, right), (step,), (spread,) = attrs["padding"], attrs["stride"], attrs["dilation"]
        # a leading axis of one row: (top, left, bottom, right)
        attrs |= {"padding": (0, left, 0, right), "stride": (1, step), "dilation": (1, spread)}
    if op == "conv_transpose2d":
        weight = _spaced(weight, attrs["dilation"])
    rank, groups = x.ndim - 2, int(attrs.get("groups", 1))
    bias = codes["bias"].numpy() if "bias" in codes else np.zeros(_outputs(op, weight, groups), np.int64)
    bits = parameters.constants["weight"].params.dtype.bits
    value = graph.feed(x.transpose(FIRST[x.ndim]), kind_of(params))
    if op == "depthwise_conv2d":
        kernel, count = weight.shape[2:], x.shape[1]
        # TOSA's depthwise weights: [kh, kw, channels, multiplier]
        turned = weight.reshape(count, weight.shape[0] // count, *kernel).transpose(2, 3, 0, 1)
        found = [_windows(graph, value, Filters(turned, bias, bits, params), attrs, ts.Op.DEPTHWISE_CONV2D, kernel)]
    else:
        found = []
        inputs, outputs = x.shape[1] // groups, bias.size // groups
        for group in range(groups):
            span, own = (slice(group * n, (group + 1) * n) for n in (inputs, outputs))
            part = graph.slice(value, [0] * (rank + 1) + [span.start], [*value.shape[:-1], inputs])
            # a transposed convolution's weights are [o / groups, c, kh, kw]: groups split its input channels
            taps = weight[:, span] if op == "conv_transpose2d" else weight[own]
            held = Filters(taps.transpose(FIRST[taps.ndim]), bias[own], bits, params)
            kind = ts.Op.CONV3D if rank == 3 else ts.Op.CONV2D
            found.append(
                _spread(graph, part, held, attrs)
                if op == "conv_transpose2d"
                else _windows(graph, part, held, attrs, kind, weight.shape[2:])
            )
    # rescaled before they are joined: CONCAT has no int48
    whole = graph.concat(found if sums else rescaled(graph, found, parameters), rank + 1)
    if op == "conv_transpose2d":
        whole = _cropped(graph, whole, attrs, weight.shape[2:])
    if not sums:
        whole = graph.activate(whole, parameters)
    if op == "conv1d":
        whole = graph.reshape(whole, [whole.shape[0], *whole.shape[2:]])
    return graph, whole, LAST[len(whole.shape)]


def _outputs(op: str, weight: Array, groups: int) -> int:
    return int(weight.shape[0]) * (groups if op == "conv_transpose2d" else 1)


def _windows(
    graph: TosaGraph, value: Value, held: Filters, attrs: Mapping[str, Any], op: Any, kernel: Sequence[int]
) -> Value:
    """Add a convolution; elements and padding beyond the last window are cut off, because TOSA allows no remainder."""
    rank = len(kernel)
    # the elements that a window spans
    reach = [d * (k - 1) + 1 for d, k in zip(attrs["dilation"], kernel, strict=True)]
    value, pads, sizes = used(graph, value, reach, attrs["stride"], attrs["padding"])
    operands, kind = held.operands(graph, value), accumulator(value)
    outputs = held.weight.shape[-1] * held.weight.shape[-2] if op == ts.Op.DEPTHWISE_CONV2D else held.weight.shape[0]
    shape = [value.shape[0], *sizes, outputs]
    return graph.op(
        op, operands, shape, kind, pads, list(attrs["stride"][:rank]), list(attrs["dilation"]), *GLOBAL, kind
    )


def used(
    graph: TosaGraph, value: Value, reach: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[Value, list[int], list[int]]:
    """Return *value* and its padding (before, after of each axis) cut to what windows reach, and the number of windows.

    *padding*: all before, then all after. Source: the SLICE that TensorFlow Lite's converter puts before a window.
    """
    rank, pads, sizes, kept = len(reach), [], [], list(value.shape)
    for axis, (size, window, step) in enumerate(zip(value.shape[1:], reach, stride, strict=False)):
        before, after = int(padding[axis]), int(padding[axis + rank])
        # how far the first window can move; TOSA demands that the stride divides it
        free = size + before + after - window
        rest = free % step
        # the remainder is taken from the padding behind first, then from the input
        kept[axis + 1] = size - max(0, rest - after)
        if kept[axis + 1] < 1:
            raise RefusedError(
                f"no window reaches the input along axis {axis}: TOSA allows no rest after the last window"
            )
        pads += [before, max(0, after - rest)]
        sizes.append(free // step + 1)
    return graph.slice(value, [0] * len(kept), kept), pads, sizes


def _spread(graph: TosaGraph, value: Value, held: Filters, attrs: Mapping[str, Any]) -> Value:
    """Add a transposed convolution; a crop is negative padding of its output, less than the kernel."""
    kernel, kind = held.weight.shape[1:3], accumulator(value)
    # TOSA: out_pad must exceed -kernel; _cropped slices off the rest
    pads = [max(pad, 1 - kernel[side // 2]) for side, pad in enumerate(_crops(attrs))]
    sides = zip(value.shape[1:3], attrs["stride"], pads[::2], pads[1::2], kernel, strict=True)
    sizes = [(size - 1) * step + before + after + k for size, step, before, after, k in sides]
    shape, stride = [value.shape[0], *sizes, held.weight.shape[0]], list(attrs["stride"])
    return graph.op(ts.Op.TRANSPOSE_CONV2D, held.operands(graph, value), shape, kind, pads, stride, *GLOBAL, kind)


def _crops(attrs: Mapping[str, Any]) -> list[int]:
    """Return the padding of the output before and after each axis; a crop is negative."""
    before, after, extra = attrs["padding"][:2], attrs["padding"][2:], attrs["output_padding"]
    return [pad for axis in (0, 1) for pad in (-before[axis], extra[axis] - after[axis])]


def _cropped(graph: TosaGraph, value: Value, attrs: Mapping[str, Any], kernel: Sequence[int]) -> Value:
    """Cut off what TRANSPOSE_CONV2D cannot crop: padding of the kernel's size or more."""
    cuts = [max(pad, 1 - kernel[side // 2]) - pad for side, pad in enumerate(_crops(attrs))]
    sizes = [size - first - last for size, first, last in zip(value.shape[1:3], cuts[::2], cuts[1::2], strict=True)]
    return graph.slice(value, [0, *cuts[::2], 0], [value.shape[0], *sizes, value.shape[3]])


def _spaced(weight: Array, dilation: Sequence[int]) -> Array:
    """Return filters (o, c, kh, kw) with zeros between their taps: TRANSPOSE_CONV2D has no dilation."""
    sizes = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    found = np.zeros((*weight.shape[:2], *sizes), weight.dtype)
    found[:, :, :: dilation[0], :: dilation[1]] = weight
    return found


def rescaled(graph: TosaGraph, parts: Sequence[Value], parameters: Parameters) -> list[Value]:
    """Rescale sums to codes of the output; per-channel multipliers are distributed over *parts* in order."""
    ratio, output = parameters.rescale, parameters.outputs["y"]
    assert ratio is not None
    mantissa, shift = ratio.mantissa.reshape(-1).tolist(), ratio.shift.reshape(-1).tolist()
    kind, zeros = kind_of(output), (0, int(output.zero_point))
    double, start, made = ratio.variant == "q31_double", 0, []
    for part in parts:
        stop = start + (part.shape[-1] if len(mantissa) > 1 else 1)
        made.append(graph.rescale(part, kind, mantissa[start:stop], shift[start:stop], zeros=zeros, double=double))
        # a single multiplier serves all parts
        start = stop if len(mantissa) > 1 else 0
    return made


def fully_connect(codes: Codes, parameters: Parameters, *, sums: bool = False) -> tuple[TosaGraph, Value]:
    """Return a fully connected layer: CONV2D over images of one pixel, TOSA 1.0's way."""
    graph, params = TosaGraph(), parameters.inputs["x"]
    # shape [n, 1, 1, c]: an image of one pixel for each row
    value = graph.feed(codes["x"].numpy()[:, None, None, :], kind_of(params))
    weight = codes["weight"].numpy()[:, None, None, :]
    bias = codes["bias"].numpy() if "bias" in codes else np.zeros(weight.shape[0], np.int64)
    held = Filters(weight, bias, parameters.constants["weight"].params.dtype.bits, params)
    kind, shape = accumulator(value), [value.shape[0], 1, 1, weight.shape[0]]
    made = graph.op(ts.Op.CONV2D, held.operands(graph, value), shape, kind, [0] * 4, [1, 1], [1, 1], *GLOBAL, kind)
    if not sums:
        made = graph.activate(rescaled(graph, [made], parameters)[0], parameters)
    return graph, graph.reshape(made, [shape[0], shape[-1]])


def multiply_matrices(codes: Codes, parameters: Parameters, *, sums: bool = False) -> tuple[TosaGraph, Value]:
    """Return MATMUL over one leading axis; leading axes that broadcast are repeated by TILE."""
    graph = TosaGraph()
    leading = np.broadcast_shapes(*(codes[name].shape[:-2] for name in ("a", "b")))
    values, zeros = [], []
    for name in ("a", "b"):
        params, held = parameters.inputs[name], codes[name].numpy()
        # MATMUL has exactly three axes and does not broadcast
        own = (1,) * (len(leading) + 2 - held.ndim) + held.shape
        value = graph.feed(held.reshape(own), kind_of(params), name)
        times = [whole // size for whole, size in zip(leading, own, strict=False)] + [1, 1]
        if max(times) > 1:
            shape = [size * many for size, many in zip(own, times, strict=True)]
            value = graph.op(ts.Op.TILE, [value, graph.sizes(times)], shape, value.kind)
        values.append(graph.reshape(value, [int(np.prod(leading, dtype=int)), *own[-2:]]))
        zeros.append(graph.const([int(params.zero_point)], value.kind))
    kind = accumulator(values[0])
    made = graph.op(ts.Op.MATMUL, [*values, *zeros], [*values[0].shape[:2], values[1].shape[2]], kind)
    if not sums:
        (made,) = rescaled(graph, [made], parameters)
    return graph, graph.reshape(made, [*leading, *made.shape[1:]])
