"""Caffe's layers as ONNX nodes, one function each. Source of the rules: the layers' sources in Caffe."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from quantizer.core.errors import FormatError, GraphError, UnsupportedError
from quantizer.ir.formats.caffe_writer import Writer, axis_of, blobs_of, layer_type

Array = np.ndarray[Any, Any]
PROD, SUM = 0, 1
MAX, AVE = 0, 1
INSIDE, OVERHANGS, BEYOND = range(3)
LOWEST = float(np.finfo(np.float32).min)
"""The initial value of Caffe's max pool, which is also the result of a window without elements."""
LEGACY = 4
"""Axes of a blob whose shape is num, channels, height and width."""


def _two(param: Any, key: str, default: int | None) -> tuple[int, int]:
    """Return a size for rows and columns, which is given once, twice, or as *_h and *_w."""
    name = "kernel" if key == "kernel_size" else key
    height, width = f"{name}_h", f"{name}_w"
    if param.HasField(height) or param.HasField(width):
        return getattr(param, height), getattr(param, width)
    said = getattr(param, key)
    values = list(said) if not isinstance(said, int) else [said] if param.HasField(key) else []
    if not values and default is None:
        raise FormatError(f"{key} is missing.")
    if len(values) > 2:
        raise UnsupportedError(f"{key} has {len(values)} numbers: must be for two spatial axes.")
    values = values or [default]
    return int(values[0]), int(values[-1])


@layer_type("Input")
def input_(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Declare inputs: one shape for each top, or one for all."""
    shapes = [tuple(shape.dim) for shape in layer.input_param.shape]
    shapes = shapes * len(layer.top) if len(shapes) == 1 else shapes
    if len(shapes) != len(layer.top):
        raise FormatError(f"{len(layer.top)} tops with {len(shapes)} shapes: every top needs one.")
    for name, shape in zip(layer.top, shapes, strict=True):
        writer.add_input(name, shape)


@layer_type("Deconvolution")
def deconvolution(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Write a ConvTranspose of images, cut equally on both sides."""
    _convolved(writer, layer, blobs, "ConvTranspose")


@layer_type("Convolution")
def convolution(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Write a Conv of images, padded equally on both sides."""
    _convolved(writer, layer, blobs, "Conv")


def _convolved(writer: Writer, layer: Any, blobs: list[Array], op: str) -> None:
    param = layer.convolution_param
    (x,) = writer.read(layer)
    bias_term = not param.HasField("bias_term") or param.bias_term
    weight, *bias = blobs_of(blobs, 1 + bias_term)
    kernel, stride, pad = (_two(param, key, d) for key, d in (("kernel_size", None), ("stride", 1), ("pad", 0)))
    dilation = [*param.dilation, *param.dilation][:2] if param.dilation else [1, 1]
    if writer.ranks[x] != 4 or (param.HasField("axis") and param.axis not in (1, -3)) or len(param.dilation) > 2:
        raise UnsupportedError("must convolve images [n, c, h, w] over their last two axes.")
    group = param.group if param.HasField("group") else 1
    # weights of a Conv are [outputs, inputs / group, h, w], of a ConvTranspose [inputs, outputs / group, h, w]
    held = weight.shape[0] if op == "Conv" else weight.shape[1] * group if weight.ndim > 1 else 0
    if weight.ndim != 4 or tuple(weight.shape[2:]) != kernel or held != param.num_output:
        raise FormatError(
            f"weights of shape {list(weight.shape)}: must be of {param.num_output} outputs, {kernel[0]} x {kernel[1]}."
        )
    names = [writer.constant(layer, "weight", weight)]
    names += [writer.constant(layer, "bias", b.reshape(-1)) for b in bias]
    places = {"kernel_shape": kernel, "strides": stride, "pads": [*pad, *pad], "dilations": dilation}
    writer.make(layer, op, [x, *names], 4, **places, group=group)


@layer_type("InnerProduct")
def inner_product(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Flatten the axes from the second on, and multiply by the weights."""
    param = layer.inner_product_param
    (x,) = writer.read(layer)
    bias_term = not param.HasField("bias_term") or param.bias_term
    weight, *bias = blobs_of(blobs, 1 + bias_term)
    # an old file gives every blob four axes
    weight = weight.reshape(weight.shape[-2:]) if weight.ndim == 4 and weight.shape[:2] == (1, 1) else weight
    axis = axis_of(param, 1, writer.ranks[x])
    if weight.ndim != 2 or weight.shape[1 if param.transpose else 0] != param.num_output:
        raise FormatError(f"weights of shape {list(weight.shape)} for {param.num_output} outputs.")
    if axis != 1:
        _rows_of_several_axes(writer, layer, x, weight if param.transpose else weight.T, bias, axis)
        return
    rows = x if writer.ranks[x] == 2 else writer.inner(layer, "Flatten", [x], 2, axis=1)
    names = [writer.constant(layer, "weight", weight)]
    names += [writer.constant(layer, "bias", b.reshape(-1)) for b in bias]
    writer.make(layer, "Gemm", [rows, *names], 2, transB=0 if param.transpose else 1)


def _rows_of_several_axes(writer: Writer, layer: Any, x: str, weight: Array, bias: list[Array], axis: int) -> None:
    """Flatten the axes from *axis* on into one; earlier axes stay."""
    shape = writer.constant(layer, "shape", np.array([0] * axis + [-1], np.int64))
    rows = writer.inner(layer, "Reshape", [x, shape], axis + 1)
    names = [rows, writer.constant(layer, "weight", weight)]
    if not bias:
        writer.make(layer, "MatMul", names, axis + 1)
        return
    constant = writer.constant(layer, "bias", bias[0].reshape(-1))
    writer.make(layer, "Add", [writer.inner(layer, "MatMul", names, axis + 1), constant], axis + 1)


@layer_type("Pooling")
def pooling(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Write a pool of maxima or means.

    The last window may extend past the end (unless round_mode is FLOOR), and means count the padding. ONNX leaves out a
    last window that begins beyond x and its padding; Caffe does so only where there is padding.
    """
    param = layer.pooling_param
    (x,) = writer.read(layer)
    if param.pool not in (MAX, AVE) or writer.ranks[x] != 4:
        raise UnsupportedError("must be of method MAX or AVE, of images.")
    if param.global_pooling:
        writer.make(layer, "GlobalMaxPool" if param.pool == MAX else "GlobalAveragePool", [x], 4)
        return
    kernel, stride, pad = (_two(param, key, d) for key, d in (("kernel_size", None), ("stride", 1), ("pad", 0)))
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": [*pad, *pad]}
    op, attrs = ("AveragePool", attrs | {"count_include_pad": 1}) if param.pool == AVE else ("MaxPool", attrs)
    if min(stride) < 1:
        raise FormatError(f"strides={list(stride)}: must be at least 1.")
    if param.round_mode:
        writer.make(layer, op, [x], 4, **attrs)
        return
    shape = writer.sizes(x)
    if shape is None:
        if not any(pad) and any(s > k for s, k in zip(stride, kernel, strict=True)):
            raise UnsupportedError(f"strides {list(stride)} above the kernel, and its image has no known size.")
        writer.make(layer, op, [x], 4, ceil_mode=1, **attrs)
        return
    cut = [_in_image(*sizes) for sizes in zip(shape[2:], kernel, stride, pad, strict=True)]
    attrs["kernel_shape"] = cut
    both = [_last_window(*sizes) for sizes in zip(shape[2:], cut, stride, pad, strict=True)]
    attrs["ceil_mode"] = int(any(last == OVERHANGS for _, last in both))
    counts = [count for count, _ in both]
    if attrs["ceil_mode"]:
        attrs["pads"] = [*pad, *map(_read_padding, both, shape[2:], cut, stride, pad)]
    beyond = [0 if any(pad) else int(last == BEYOND) for _, last in both]
    if not any(beyond):
        writer.known[writer.make(layer, op, [x], 4, **attrs)] = [*shape[:2], *counts]
        return
    if param.pool == AVE:
        raise UnsupportedError(
            "its last window begins beyond the image, and Caffe divides its sum by a count that is not above 0. "
            "Write round_mode: FLOOR."
        )
    maxima = writer.inner(layer, op, [x], 4, **attrs)
    writer.known[maxima] = [*shape[:2], *counts]
    # begins of four axes, then ends: of rows and columns, the missing windows
    ends = writer.constant(layer, "pads", np.array([0] * 6 + beyond, np.int64))
    writer.make(layer, "Pad", [maxima, ends, writer.constant(layer, "lowest", np.array(LOWEST, np.float32))], 4)


def _in_image(size: int, kernel: int, stride: int, pad: int) -> int:
    """Return the window's size. If an axis has one window only, the size is cut to x and its padding.

    ONNX refuses a larger window; Caffe rounds the number of windows up to one and cuts the window.
    """
    beyond = kernel - size - 2 * pad
    return kernel - beyond if 0 < beyond < stride else kernel


def _last_window(size: int, kernel: int, stride: int, pad: int) -> tuple[int, int]:
    """Return how many windows of an axis begin in x or its padding, and how the last of Caffe's windows lies.

    INSIDE: within x and padding; OVERHANGS: it begins there and ends beyond; BEYOND: it begins beyond.
    """
    free = size + 2 * pad - kernel
    count = -(-free // stride) + 1
    if (count - 1) * stride >= size + pad:
        return count - 1, BEYOND
    return count, OVERHANGS if free % stride else INSIDE


def _read_padding(last: tuple[int, int], size: int, kernel: int, stride: int, pad: int) -> int:
    """Return how much of the end padding windows read, if a further window would begin beyond it.

    With no more padding than that, ONNX's ceil_mode has no further window for this axis either.
    """
    count, place = last
    return min(pad, max(0, (count - 1) * stride + kernel - size - pad)) if place == BEYOND else pad


@layer_type("ReLU")
def relu(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Write a Relu, or a LeakyRelu if there is a slope."""
    (x,) = writer.read(layer)
    slope = layer.relu_param.negative_slope
    attrs = {"alpha": slope} if slope else {}
    writer.make(layer, "LeakyRelu" if slope else "Relu", [x], writer.ranks[x], **attrs)


@layer_type("BatchNorm")
def batch_norm(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Subtract the stored mean, divide by the stored deviation.

    Both are first divided by the third blob unless it is 0.
    """
    param = layer.batch_norm_param
    (x,) = writer.read(layer)
    mean, variance, count = blobs_of(blobs, 3)
    if param.HasField("use_global_stats") and not param.use_global_stats:
        raise UnsupportedError("use_global_stats=false: its statistics would be those of the batch.")
    # the third blob is the sum of the weights of the averages; 0: nothing was averaged, and Caffe takes zeros
    factor = np.float32(0 if count.reshape(-1)[0] == 0 else 1 / count.reshape(-1)[0])
    ones = np.ones(mean.size, np.float32)
    values = {
        "scale": ones,
        "shift": ones * 0,
        "mean": mean.reshape(-1) * factor,
        "variance": variance.reshape(-1) * factor,
    }
    names = [writer.constant(layer, key, v) for key, v in values.items()]
    writer.make(
        layer, "BatchNormalization", [x, *names], writer.ranks[x], epsilon=param.eps if param.HasField("eps") else 1e-5
    )


def right_aligned(blob: Array, axes: int) -> Array:
    """Return a legacy blob (num, channels, height, width) with only the last axes, as many as its layer requires.

    Source: Blob::ShapeEquals of Caffe, which reads a blob of fewer axes as one with ones before them. A blob with only
    one size above 1 is a vector; writers of such files put that size on any axis.
    """
    if blob.ndim != LEGACY or axes >= LEGACY:
        return blob
    if all(size == 1 for size in blob.shape[: LEGACY - axes]):
        return blob.reshape(blob.shape[LEGACY - axes :])
    return blob.reshape(-1) if axes == 1 and sum(size > 1 for size in blob.shape) == 1 else blob


@layer_type("Scale")
def scale(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Multiply by factors along some axes, and add an optional bias. The factors are a blob or a second bottom."""
    param = layer.scale_param
    x, *second = writer.read(layer, 2 if len(layer.bottom) == 2 else 1)
    rank = writer.ranks[x]
    axis = param.axis if param.HasField("axis") else 1
    axis = axis + rank if axis < 0 else axis
    if second:
        factor, bias = along_axis(writer, layer, second[0], rank, axis), blobs_of(blobs, int(param.bias_term))
        axes = writer.ranks[second[0]]
    else:
        held, *bias = blobs_of(blobs, 1 + param.bias_term)
        count = param.num_axes if param.HasField("num_axes") else 1
        held = right_aligned(held, rank - axis if count < 0 else count)
        if not 0 <= axis <= rank - held.ndim or any(part.size != held.size for part in bias):
            raise UnsupportedError(f"factors of shape {list(held.shape)} from axis {axis} of {rank} on: they must fit.")
        bias = [part.reshape(held.shape) for part in bias]
        factor, axes = (
            writer.constant(layer, "factor", held.reshape([*held.shape, *[1] * (rank - axis - held.ndim)])),
            0,
        )
    if not bias:
        writer.make(layer, "Mul", [x, factor], rank)
        return
    shift = right_aligned(bias[0], axes) if second else bias[0]
    shift = shift.reshape([*shift.shape, *[1] * (rank - axis - shift.ndim)])
    made = writer.inner(layer, "Mul", [x, factor], rank)
    writer.make(layer, "Add", [made, writer.constant(layer, "bias", shift)], rank)


def along_axis(writer: Writer, layer: Any, tensor: str, rank: int, axis: int) -> str:
    """Return a second bottom, which lies along the axes from *axis* on, with axes of size 1 appended.

    Source: ScaleLayer and BiasLayer of Caffe. num_axes is ignored there: the bottom's own axes count.
    """
    axes = writer.ranks[tensor]
    if not 0 <= axis <= rank - axes:
        raise FormatError(f"a second bottom of {axes} axes from axis {axis} of {rank} on: they must fit.")
    if axis + axes == rank:
        return tensor
    after = writer.constant(layer, "axes", np.arange(axes, rank - axis, dtype=np.int64))
    return writer.inner(layer, "Unsqueeze", [tensor, after], rank - axis)


@layer_type("Eltwise")
def eltwise(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Write products, sums with coefficients, or maxima of two bottoms or more."""
    param = layer.eltwise_param
    tensors = writer.read(layer, None)
    kind = param.operation if param.HasField("operation") else SUM
    if len(tensors) < 2 or len({writer.ranks[name] for name in tensors}) > 1:
        raise GraphError("must have two bottoms or more, of one shape.")
    if param.coeff and (kind != SUM or len(param.coeff) != len(tensors)):
        raise FormatError(f"{len(param.coeff)} coefficients: a sum has one for each of its {len(tensors)} bottoms.")
    rank = writer.ranks[tensors[0]]
    for i, factor in enumerate(param.coeff):
        if factor != 1:
            constant = writer.constant(layer, f"coeff{i}", np.array(factor, np.float32))
            tensors[i] = writer.inner(layer, "Mul", [tensors[i], constant], rank)
    if kind not in (PROD, SUM):
        writer.make(layer, "Max", tensors, rank)
        return
    op = "Mul" if kind == PROD else "Add"
    # ONNX's Add and Mul take two operands
    first = reduce(lambda a, b: writer.inner(layer, op, [a, b], rank), tensors[:-1])
    writer.make(layer, op, [first, tensors[-1]], rank)


@layer_type("Concat")
def concat(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Concatenate along an axis, by default the channels."""
    param, tensors = layer.concat_param, writer.read(layer, None)
    axis = param.concat_dim if param.HasField("concat_dim") and not param.HasField("axis") else None
    axis = (param.axis if param.HasField("axis") else 1) if axis is None else axis
    writer.make(layer, "Concat", tensors, writer.ranks[tensors[0]], axis=axis)


@layer_type("Softmax")
def softmax(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Write a softmax along an axis, by default the channels."""
    (x,) = writer.read(layer)
    param = layer.softmax_param
    writer.make(layer, "Softmax", [x], writer.ranks[x], axis=param.axis if param.HasField("axis") else 1)


@layer_type("Dropout")
def dropout(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Pass the bottom on: dropout has no effect at test time."""
    (x,) = writer.read(layer)
    writer.same(layer, x)
