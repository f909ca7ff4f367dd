"""More of Caffe's layers: element-wise and moving layers of one bottom, and layers of older and detection networks.

Source of the rules: the layers' sources in Caffe; Permute and Normalize are those of its SSD branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.ir.formats.caffe_layers import along_axis, right_aligned
from quantizer.ir.formats.caffe_writer import Array, Writer, axis_of, blobs_of, layer_type, said

REDUCTIONS = {1: "ReduceSum", 2: "ReduceL1", 3: "ReduceSumSquare", 4: "ReduceMean"}
WITHIN_CHANNEL = 1
SMALLEST_RANK = 3
"""The smallest number of axes of the result of ArgMax without an axis."""


def _alone(op: str) -> Callable[[Writer, Any, list[Array]], None]:
    def write(writer: Writer, layer: Any, _: list[Array]) -> None:
        (x,) = writer.read(layer)
        writer.make(layer, op, [x], writer.ranks[x])

    return write


for _kind, _op in (("Sigmoid", "Sigmoid"), ("TanH", "Tanh"), ("AbsVal", "Abs"), ("BNLL", "Softplus")):
    layer_type(_kind)(_alone(_op))


def _number(writer: Writer, layer: Any, key: str, value: float) -> str:
    return writer.constant(layer, key, np.array(value, np.float32))


def _axes(writer: Writer, layer: Any, key: str, values: Sequence[int]) -> str:
    return writer.constant(layer, key, np.array(values, np.int64))


def _affine(writer: Writer, layer: Any, x: str, scale: float, shift: float) -> str:
    """Return shift + scale * x."""
    rank = writer.ranks[x]
    if scale != 1:
        x = writer.inner(layer, "Mul", [x, _number(writer, layer, "scale", scale)], rank)
    return writer.inner(layer, "Add", [x, _number(writer, layer, "shift", shift)], rank) if shift else x


@layer_type("ELU")
def elu(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Compute alpha * (exp(x) - 1) below 0, else x."""
    (x,) = writer.read(layer)
    writer.make(layer, "Elu", [x], writer.ranks[x], alpha=said(layer.elu_param, "alpha", 1.0))


@layer_type("PReLU")
def prelu(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Multiply x by a slope below 0: one for each channel, or one for all."""
    (x,) = writer.read(layer)
    (slope,) = blobs_of(blobs, 1)
    if layer.prelu_param.channel_shared and slope.size != 1:
        raise FormatError(f"slopes of shape {list(slope.shape)}: must be one slope, because channel_shared is set.")
    shape = [-1, *[1] * (writer.ranks[x] - 2)]
    writer.make(layer, "PRelu", [x, writer.constant(layer, "slope", slope.reshape(shape))], writer.ranks[x])


@layer_type("Power")
def power(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Raise shift + scale * x to a power."""
    (x,) = writer.read(layer)
    param = layer.power_param
    exponent = said(param, "power", 1.0)
    inner = _affine(writer, layer, x, said(param, "scale", 1.0), said(param, "shift", 0.0))
    if exponent == 1:
        writer.make(layer, "Identity", [inner], writer.ranks[x])
        return
    writer.make(layer, "Pow", [inner, _number(writer, layer, "power", exponent)], writer.ranks[x])


def _base(param: Any) -> float:
    """Return the logarithm of the base; a base of -1 means e."""
    base = said(param, "base", -1.0)
    if base != -1 and base <= 0:
        raise FormatError(f"base={base}: must be above 0, or -1 for e.")
    return 1.0 if base == -1 else math.log(base)


@layer_type("Exp")
def exp(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Raise a base to the power shift + scale * x."""
    (x,) = writer.read(layer)
    param = layer.exp_param
    factor = _base(param)
    inner = _affine(writer, layer, x, said(param, "scale", 1.0) * factor, said(param, "shift", 0.0) * factor)
    writer.make(layer, "Exp", [inner], writer.ranks[x])


@layer_type("Log")
def log(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Compute the logarithm of shift + scale * x to a base."""
    (x,) = writer.read(layer)
    param = layer.log_param
    factor, rank = _base(param), writer.ranks[x]
    if factor == 0:
        raise FormatError("base=1: has no logarithm.")
    inner = _affine(writer, layer, x, said(param, "scale", 1.0), said(param, "shift", 0.0))
    if factor == 1:
        writer.make(layer, "Log", [inner], rank)
        return
    found = writer.inner(layer, "Log", [inner], rank)
    writer.make(layer, "Mul", [found, _number(writer, layer, "factor", 1 / factor)], rank)


@layer_type("Threshold")
def threshold(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Return 1 above a threshold, else 0."""
    (x,) = writer.read(layer)
    limit = _number(writer, layer, "threshold", said(layer.threshold_param, "threshold", 0.0))
    above = writer.inner(layer, "Greater", [x, limit], writer.ranks[x])
    writer.make(layer, "Cast", [above], writer.ranks[x], to=TensorProto.FLOAT)


@layer_type("Bias")
def bias(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Add constants along some axes, or a second bottom."""
    x, *second = writer.read(layer, 2 if len(layer.bottom) == 2 else 1)
    rank = writer.ranks[x]
    axis = axis_of(layer.bias_param, 1, rank)
    if second:
        writer.make(layer, "Add", [x, along_axis(writer, layer, second[0], rank, axis)], rank)
        return
    (values,) = blobs_of(blobs, 1)
    count = said(layer.bias_param, "num_axes", 1)
    values = right_aligned(values, rank - axis if count < 0 else count)
    if axis + values.ndim > rank:
        raise FormatError(f"constants of shape {list(values.shape)} from axis {axis} of {rank} on: they must fit.")
    shape = [*values.shape, *[1] * (rank - axis - values.ndim)]
    writer.make(layer, "Add", [x, writer.constant(layer, "bias", values.reshape(shape))], rank)


@layer_type("LRN")
def lrn(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Divide x by a power of a sum of squares: of neighbouring channels, or of neighbours in its own channel."""
    (x,) = writer.read(layer)
    param = layer.lrn_param
    size, alpha, beta = said(param, "local_size", 5), said(param, "alpha", 1.0), said(param, "beta", 0.75)
    if size % 2 == 0 or writer.ranks[x] != 4:
        raise FormatError(f"local_size={size} of {writer.ranks[x]} axes: must be odd, of images.")
    if param.norm_region != WITHIN_CHANNEL:
        writer.make(layer, "LRN", [x], 4, size=size, alpha=alpha, beta=beta, bias=said(param, "k", 1.0))
        return
    around = [size // 2] * 4
    square = writer.inner(layer, "Mul", [x, x], 4)
    # as in Caffe's own pooling layer, the mean counts the padding
    mean = writer.inner(layer, "AveragePool", [square], 4, kernel_shape=[size] * 2, pads=around, count_include_pad=1)
    base = _affine(writer, layer, mean, alpha, 1.0)
    factor = writer.inner(layer, "Pow", [base, _number(writer, layer, "power", -beta)], 4)
    writer.make(layer, "Mul", [x, factor], 4)


@layer_type("MVN")
def mvn(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Divide deviations from the mean of each channel or example by the root of their mean square plus eps."""
    (x,) = writer.read(layer)
    param, rank = layer.mvn_param, writer.ranks[x]
    axes = list(range(1 if param.across_channels else 2, rank))
    if not axes:
        raise UnsupportedError(f"of {rank} axes: must have places to average over.")
    mean = writer.inner(layer, "ReduceMean", [x], rank, axes=axes, keepdims=1)
    if not said(param, "normalize_variance", default=True):
        writer.make(layer, "Sub", [x, mean], rank)
        return
    away = writer.inner(layer, "Sub", [x, mean], rank)
    square = writer.inner(layer, "Mul", [away, away], rank)
    # Caffe adds eps to the root, not below it
    spread = writer.inner(
        layer, "Sqrt", [writer.inner(layer, "ReduceMean", [square], rank, axes=axes, keepdims=1)], rank
    )
    least = _number(writer, layer, "eps", said(param, "eps", 1e-9))
    writer.make(layer, "Div", [away, writer.inner(layer, "Add", [spread, least], rank)], rank)


@layer_type("Normalize")
def normalize(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Divide x by the root of its sum of squares, per place or in all; multiply by one factor or one per channel."""
    (x,) = writer.read(layer)
    (factor,) = blobs_of(blobs, 1)
    param, rank = layer.norm_param, writer.ranks[x]
    axes = list(range(1, rank)) if said(param, "across_spatial", default=True) else [1]
    total = writer.inner(layer, "ReduceSumSquare", [x], rank, axes=axes, keepdims=1)
    least = _number(writer, layer, "eps", said(param, "eps", 1e-10))
    root = writer.inner(layer, "Sqrt", [writer.inner(layer, "Add", [total, least], rank)], rank)
    unit = writer.inner(layer, "Div", [x, root], rank)
    shape = [-1, *[1] * (rank - 2)]
    writer.make(layer, "Mul", [unit, writer.constant(layer, "factor", factor.reshape(shape))], rank)


@layer_type("Flatten")
def flatten(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Flatten the axes from one to another into one."""
    (x,) = writer.read(layer)
    param, rank = layer.flatten_param, writer.ranks[x]
    first, last = axis_of(param, min(1, rank - 1), rank), axis_of(param, -1, rank, "end_axis")
    if first > last:
        raise FormatError(f"axis={first} after end_axis={last}: must not be.")
    kept = [0] * first + [-1]
    if last == rank - 1:
        writer.make(layer, "Reshape", [x, _axes(writer, layer, "shape", kept)], first + 1)
        return
    # 0 keeps a size only at its own place, and the sizes behind the flattened ones move: they are read at run time
    sizes = writer.inner(layer, "Shape", [x], 1)
    ends = [_axes(writer, layer, key, [value]) for key, value in (("start", last + 1), ("end", rank))]
    behind = writer.inner(layer, "Slice", [sizes, *ends], 1)
    shape = writer.inner(layer, "Concat", [_axes(writer, layer, "shape", kept), behind], 1, axis=0)
    writer.make(layer, "Reshape", [x, shape], first + rank - last)


@layer_type("Reshape")
def reshape(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Reshape some axes: 0 keeps the size at its place, -1 is the remainder."""
    (x,) = writer.read(layer)
    param, rank = layer.reshape_param, writer.ranks[x]
    sizes = [int(size) for size in param.shape.dim]
    first = param.axis if param.axis >= 0 else param.axis + rank + 1
    count = said(param, "num_axes", -1)
    if not 0 <= first <= rank or not (count == -1 or 0 <= count <= rank - first):
        raise FormatError(f"axis={param.axis}, num_axes={count} of {rank} axes: must name some of them.")
    behind = 0 if count == -1 else rank - first - count
    kept = [0] * behind
    # the axes behind move to other places, where 0 would keep the wrong sizes
    if behind and count != len(sizes):
        known = writer.sizes(x)
        if known is None:
            raise UnsupportedError(
                f"num_axes={count} becomes {len(sizes)}, and what is reshaped has no known size: write all axes."
            )
        kept = known[-behind:]
    shape = [0] * first + sizes + kept
    writer.make(layer, "Reshape", [x, _axes(writer, layer, "shape", shape)], len(shape))


@layer_type("Permute")
def permute(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Permute axes; axes that are not named follow."""
    (x,) = writer.read(layer)
    rank = writer.ranks[x]
    order = list(layer.permute_param.order)
    order += [axis for axis in range(rank) if axis not in order]
    if sorted(order) != list(range(rank)):
        raise FormatError(f"order={order}: must be the axes of {rank}, each once.")
    writer.make(layer, "Transpose", [x], rank, perm=order)


@layer_type("Tile")
def tile(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Repeat the tensor along one axis."""
    (x,) = writer.read(layer)
    rank = writer.ranks[x]
    counts = [1] * rank
    counts[axis_of(layer.tile_param, 1, rank)] = layer.tile_param.tiles
    if layer.tile_param.tiles < 1:
        raise FormatError(f"tiles={layer.tile_param.tiles}: must be at least 1.")
    writer.make(layer, "Tile", [x, _axes(writer, layer, "tiles", counts)], rank)


@layer_type("Split")
def split(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Give the same tensor several names."""
    (x,) = writer.read(layer)
    writer.several(layer, [x] * len(layer.top))


@layer_type("Slice")
def slice_(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Split along an axis, at the given points or into parts of equal size."""
    (x,) = writer.read(layer)
    param, rank = layer.slice_param, writer.ranks[x]
    key = "slice_dim" if param.HasField("slice_dim") and not param.HasField("axis") else "axis"
    axis, points = axis_of(param, 1, rank, key), list(param.slice_point)
    if not points:
        writer.make_several(layer, "Split", [x], rank, axis=axis)
        return
    if len(points) != len(layer.top) - 1 or points != sorted(set(points)) or points[0] < 1:
        raise FormatError(f"slice_point={points} for {len(layer.top)} tops: must be one less, rising from 1 on.")
    ends = [*points, np.iinfo(np.int64).max]
    parts = []
    for start, end in zip([0, *points], ends, strict=True):
        bounds = [_axes(writer, layer, key, [value]) for key, value in (("start", start), ("end", end), ("axis", axis))]
        parts.append(writer.inner(layer, "Slice", [x, *bounds], rank))
    writer.several(layer, parts)


@layer_type("Crop")
def crop(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Crop the first bottom from an offset on to the second bottom's sizes, along the axes from one on."""
    x, like = writer.read(layer, 2)
    rank = writer.ranks[x]
    if writer.ranks[like] != rank:
        raise FormatError(f"bottoms of {rank} and {writer.ranks[like]} axes: the numbers must be equal.")
    axes = list(range(axis_of(layer.crop_param, 2, rank), rank))
    offsets = list(layer.crop_param.offset) or [0]
    offsets = offsets * len(axes) if len(offsets) == 1 else offsets
    if len(offsets) != len(axes):
        raise FormatError(f"{len(offsets)} offsets for {len(axes)} axes: must be one, or one for each.")
    starts, along = _axes(writer, layer, "offset", offsets), _axes(writer, layer, "axes", axes)
    sizes = writer.inner(layer, "Gather", [writer.inner(layer, "Shape", [like], 1), along], 1)
    ends = writer.inner(layer, "Add", [sizes, starts], 1)
    writer.make(layer, "Slice", [x, starts, ends, along], rank)


@layer_type("Reduction")
def reduction(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Reduce the axes from one on by a sum, a sum of magnitudes or of squares, or a mean; multiply by a factor."""
    (x,) = writer.read(layer)
    param, rank = layer.reduction_param, writer.ranks[x]
    op = REDUCTIONS.get(said(param, "operation", 1))
    if op is None:
        raise FormatError("operation NONE: must be SUM, ASUM, SUMSQ or MEAN.")
    first = axis_of(param, 0, rank)
    axes = list(range(first, rank))
    # in the opset that is written, ReduceSum alone takes its axes as an operand
    inputs, attrs = ([x, _axes(writer, layer, "axes", axes)], {}) if op == "ReduceSum" else ([x], {"axes": axes})
    factor = said(param, "coeff", 1.0)
    if factor == 1:
        writer.make(layer, op, inputs, first, keepdims=0, **attrs)
        return
    found = writer.inner(layer, op, inputs, first, keepdims=0, **attrs)
    writer.make(layer, "Mul", [found, _number(writer, layer, "coeff", factor)], first)


@layer_type("ArgMax")
def argmax(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Return the index of the maximum as a float; on request its value as well, or with an axis its value instead.

    Of equal maxima the last one counts.
    """
    (x,) = writer.read(layer)
    param, rank = layer.argmax_param, writer.ranks[x]
    if said(param, "top_k", 1) != 1:
        raise UnsupportedError(f"top_k={param.top_k}: must be 1.")
    if param.HasField("axis"):
        axis = axis_of(param, 0, rank)
        if param.out_max_val:
            writer.make(layer, "ReduceMax", [x], rank, axes=[axis], keepdims=1)
            return
        place = writer.inner(layer, "ArgMax", [x], rank, axis=axis, keepdims=1, select_last_index=1)
        writer.make(layer, "Cast", [place], rank, to=TensorProto.FLOAT)
        return
    rows = writer.inner(layer, "Flatten", [x], 2, axis=1)
    # Caffe sorts pairs of value and index, so the largest index of equal values comes first
    place = writer.inner(layer, "ArgMax", [rows], 2, axis=1, keepdims=1, select_last_index=1)
    found = writer.inner(layer, "Cast", [place], 2, to=TensorProto.FLOAT)
    if param.out_max_val:
        largest = writer.inner(layer, "ReduceMax", [rows], 2, axes=[1], keepdims=1)
        found = writer.inner(layer, "Concat", [found, largest], 2, axis=1)
    shape = [0, 2 if param.out_max_val else 1, *[1] * (max(rank, SMALLEST_RANK) - 2)]
    writer.make(layer, "Reshape", [found, _axes(writer, layer, "shape", shape)], len(shape))


@layer_type("Embed")
def embed(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Return the row of the weights that each number names, plus constants."""
    (x,) = writer.read(layer)
    param, rank = layer.embed_param, writer.ranks[x] + 1
    has_bias = said(param, "bias_term", default=True)
    weight, *constants = blobs_of(blobs, 1 + has_bias)
    weight = right_aligned(weight, 2)
    if weight.shape != (param.input_dim, param.num_output):
        raise FormatError(f"weights of shape {list(weight.shape)}: must be [{param.input_dim}, {param.num_output}].")
    places = writer.inner(layer, "Cast", [x], rank - 1, to=TensorProto.INT64)
    inputs = [writer.constant(layer, "weight", weight), places]
    if not constants:
        writer.make(layer, "Gather", inputs, rank, axis=0)
        return
    rows = writer.inner(layer, "Gather", inputs, rank, axis=0)
    writer.make(layer, "Add", [rows, writer.constant(layer, "bias", constants[0].reshape(-1))], rank)
