"""Caffe's layers as ONNX nodes, one function each. Source of the rules: the layers' sources in Caffe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, checker, helper, numpy_helper, shape_inference

from quantizer.core.errors import FormatError, GraphError, UnsupportedError
from quantizer.ir.formats.onnx_fatal import refuse_fatal

Array = np.ndarray[Any, Any]
Layer = Callable[["Writer", Any, list[Array]], None]
LAYERS: dict[str, Layer] = {}
PROD, SUM = 0, 1
MAX, AVE = 0, 1
INSIDE, OVERHANGS, BEYOND = range(3)
LARGEST_SIZE = 1 << 24
OPSET, IR_VERSION = 13, 8
LOWEST = float(np.finfo(np.float32).min)
"""The initial value of Caffe's max pool, which is also the result of a window without elements."""
LEGACY = 4
"""Axes of a blob whose shape is num, channels, height and width."""


class Writer:
    """Collects nodes and constants; a layer that writes into its own bottom makes a new tensor."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.ranks: dict[str, int] = {}
        """Number of axes of each tensor."""
        self.known: dict[str, list[int]] = {}
        """Shapes that ONNX's shape inference gets wrong: it keeps pools' windows that begin beyond their operand."""
        self._now: dict[str, str] = {}
        """Caffe's blob -> the tensor that it is at present."""

    def add_input(self, name: str, shape: Sequence[int]) -> None:
        """Declare an input."""
        if not shape or not all(0 < size <= LARGEST_SIZE for size in shape):
            raise FormatError(f"input {name!r} has shape {list(shape)}: every size must lie in [1, {LARGEST_SIZE}].")
        if name in self._now:
            raise GraphError(f"blob {name!r} is made twice: rename one.")
        self.inputs[name], self._now[name], self.ranks[name] = tuple(int(size) for size in shape), name, len(shape)

    def read(self, layer: Any, count: int | None = 1) -> list[str]:
        """Return the tensors that a layer reads; *count*: their required number, None for one or more."""
        if len(layer.bottom) != count and not (count is None and layer.bottom):
            raise GraphError(f"{len(layer.bottom)} bottoms: must be {'at least 1' if count is None else count}.")
        for name in layer.bottom:
            if name not in self._now:
                raise GraphError(f"bottom {name!r}: no layer before it makes it.")
        return [self._now[name] for name in layer.bottom]

    def free(self, name: str) -> str:
        """Return a name that no tensor has."""
        found, count = name, 1
        taken = {*self.ranks, *self.constants}
        while found in taken:
            count += 1
            found = f"{name}_{count}"
        return found

    def constant(self, layer: Any, key: str, values: Array) -> str:
        """Add a constant of a layer."""
        name = self.free(f"{layer.name}.{key}")
        self.constants[name] = np.asarray(values, order="C")
        return name

    def inner(self, layer: Any, op: str, inputs: Sequence[str], rank: int, **attrs: Any) -> str:
        """Add a node with a result that only this layer reads."""
        made = self.free(f"{layer.name}#{op}")
        return self._node(made, op, inputs, made, rank, attrs)

    def make(self, layer: Any, op: str, inputs: Sequence[str], rank: int, **attrs: Any) -> str:
        """Add the node that makes the layer's top; return its tensor."""
        top = self._top(layer)
        made = self.free(top)
        self._node(layer.name, op, inputs, made, rank, attrs)
        self._now[top] = made
        return made

    def make_several(self, layer: Any, op: str, inputs: Sequence[str], rank: int, **attrs: Any) -> None:
        """Add the node that makes all of the layer's tops."""
        made: list[str] = []
        for top in [self._named(layer, name) for name in layer.top]:
            made.append(self.free(top))
            self.ranks[made[-1]] = rank
            self._now[top] = made[-1]
        self.nodes.append(helper.make_node(op, list(inputs), made, name=layer.name, **attrs))

    def several(self, layer: Any, tensors: Sequence[str]) -> None:
        """Let the layer's tops be tensors that are there."""
        for top, tensor in zip([self._named(layer, name) for name in layer.top], tensors, strict=True):
            self._now[top] = tensor

    def same(self, layer: Any, tensor: str) -> None:
        """Let the layer's top be a tensor that is there."""
        self._now[self._top(layer)] = tensor

    def _top(self, layer: Any) -> str:
        if len(layer.top) != 1:
            raise UnsupportedError(f"{len(layer.top)} tops: must be 1.")
        return self._named(layer, layer.top[0])

    def _named(self, layer: Any, name: str) -> str:
        if name in self._now and name not in layer.bottom:
            raise GraphError(f"blob {name!r} is made twice: rename one.")
        return name

    def _node(self, name: str, op: str, inputs: Sequence[str], made: str, rank: int, attrs: dict[str, Any]) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [made], name=name, **attrs))
        self.ranks[made] = rank
        return made

    def sizes(self, tensor: str) -> list[int] | None:
        """Return the shape of a tensor by ONNX's shape inference over the nodes so far; None if it does not follow.

        Only constants that can hold a shape keep their values.
        """
        held = {n: v for n, v in self.constants.items() if v.dtype == np.int64}
        shapes = {**self.inputs, **{n: v.shape for n, v in self.constants.items() if n not in held}, **self.known}
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(shape)) for n, shape in shapes.items()]
        nodes = [node for node in self.nodes if node.output[0] not in self.known]
        nodes.append(helper.make_node("Identity", [tensor], ["#"]))
        made = [helper.make_tensor_value_info("#", TensorProto.FLOAT, [None] * self.ranks[tensor])]
        kept = [numpy_helper.from_array(v, n) for n, v in held.items()]
        graph = helper.make_graph(nodes, "sizes", given, made, kept)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        try:
            checker.check_model(model)
            follow = refuse_fatal(model, tensor)
            shape = shape_inference.infer_shapes(model, data_prop=follow).graph.output[0].type.tensor_type.shape
        except Exception:  # noqa: BLE001 - what is wrong with a node is said once the network is whole
            return None
        found = [axis.dim_value for axis in shape.dim]
        return found if len(found) == self.ranks[tensor] and all(found) else None

    def outputs(self) -> list[str]:
        """Return the tensors that no layer reads, in order."""
        read = {name for node in self.nodes for name in node.input}
        return [name for node in self.nodes for name in node.output if name not in read]


def layer_type(name: str) -> Callable[[Layer], Layer]:
    """Register the decorated function for layers of a type."""

    def register(function: Layer) -> Layer:
        LAYERS[name] = function
        return function

    return register


def blobs_of(blobs: list[Array], count: int) -> list[Array]:
    """Return the constants of a layer, as many as it must have."""
    if len(blobs) != count:
        raise FormatError(f"the caffemodel has {len(blobs)} blobs for it: must have {count}.")
    return blobs


def axis_of(param: Any, default: int, rank: int, key: str = "axis") -> int:
    """Return the axis that a layer names, from 0 on."""
    axis: int = getattr(param, key) if param.HasField(key) else default
    if not -rank <= axis < rank:
        raise FormatError(f"{key}={axis}: must lie in [{-rank}, {rank - 1}].")
    return axis % rank


def said(param: Any, key: str, default: Any) -> Any:
    """Return a field, or Caffe's default."""
    return getattr(param, key) if param.HasField(key) else default


def _two(param: Any, key: str, default: int | None) -> tuple[int, int]:
    """Return a size along rows and columns: given once, twice, or as *_h and *_w."""
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
    """One shape for each top, or one for all."""
    shapes = [tuple(shape.dim) for shape in layer.input_param.shape]
    shapes = shapes * len(layer.top) if len(shapes) == 1 else shapes
    if len(shapes) != len(layer.top):
        raise FormatError(f"{len(layer.top)} tops with {len(shapes)} shapes: every top needs one.")
    for name, shape in zip(layer.top, shapes, strict=True):
        writer.add_input(name, shape)


@layer_type("Deconvolution")
def deconvolution(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """ConvTranspose of images, cut equally on both sides."""
    _convolved(writer, layer, blobs, "ConvTranspose")


@layer_type("Convolution")
def convolution(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Conv of images, padded equally on both sides."""
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
    """Rows of all axes from the second on, times the weights."""
    param = layer.inner_product_param
    (x,) = writer.read(layer)
    bias_term = not param.HasField("bias_term") or param.bias_term
    weight, *bias = blobs_of(blobs, 1 + bias_term)
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
    """Maxima or means; the last window may overhang (unless round_mode is FLOOR), and means count the padding.

    ONNX leaves out a last window that begins beyond x and its padding; Caffe does so only where there is padding.
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
    both = [_last_window(*sizes) for sizes in zip(shape[2:], kernel, stride, pad, strict=True)]
    attrs["ceil_mode"] = int(any(last == OVERHANGS for _, last in both))
    counts = [count for count, _ in both]
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
    ends = writer.constant(layer, "pads", np.array([0] * 6 + beyond, np.int64))
    writer.make(layer, "Pad", [maxima, ends, writer.constant(layer, "lowest", np.array(LOWEST, np.float32))], 4)


def _last_window(size: int, kernel: int, stride: int, pad: int) -> tuple[int, int]:
    """Return how many windows of an axis begin in x or its padding, and the place of the last window by Caffe's ceil.

    That is INSIDE, or it begins there and OVERHANGS, or it begins BEYOND.
    """
    free = size + 2 * pad - kernel
    count = -(-free // stride) + 1
    if (count - 1) * stride >= size + pad:
        return count - 1, BEYOND
    return count, OVERHANGS if free % stride else INSIDE


@layer_type("ReLU")
def relu(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Relu, or LeakyRelu with a slope."""
    (x,) = writer.read(layer)
    slope = layer.relu_param.negative_slope
    attrs = {"alpha": slope} if slope else {}
    writer.make(layer, "LeakyRelu" if slope else "Relu", [x], writer.ranks[x], **attrs)


@layer_type("BatchNorm")
def batch_norm(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Deviation from the stored mean over the stored deviation. Both are divided by the third blob unless it is 0."""
    param = layer.batch_norm_param
    (x,) = writer.read(layer)
    mean, variance, count = blobs_of(blobs, 3)
    if param.HasField("use_global_stats") and not param.use_global_stats:
        raise UnsupportedError("use_global_stats=false: its statistics would be those of the batch.")
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
    """Return a legacy blob (num, channels, height, width) with as many axes as its layer says: the last ones.

    Source: Blob::ShapeEquals of Caffe, which reads a blob of fewer axes as one with ones before them. A blob with
    only one size above 1 has one axis. Writers of such files put that size anywhere.
    """
    if blob.ndim != LEGACY or axes >= LEGACY:
        return blob
    if all(size == 1 for size in blob.shape[: LEGACY - axes]):
        return blob.reshape(blob.shape[LEGACY - axes :])
    return blob.reshape(-1) if axes == 1 and sum(size > 1 for size in blob.shape) == 1 else blob


@layer_type("Scale")
def scale(writer: Writer, layer: Any, blobs: list[Array]) -> None:
    """Factors along some axes, and constants where it has a bias."""
    param = layer.scale_param
    (x,) = writer.read(layer)
    rank = writer.ranks[x]
    factor, *bias = blobs_of(blobs, 1 + param.bias_term)
    axis = param.axis if param.HasField("axis") else 1
    axis = axis + rank if axis < 0 else axis
    count = param.num_axes if param.HasField("num_axes") else 1
    factor = right_aligned(factor, rank - axis if count < 0 else count)
    if not 0 <= axis <= rank - factor.ndim or any(part.size != factor.size for part in bias):
        raise UnsupportedError(f"factors of shape {list(factor.shape)} from axis {axis} of {rank} on: they must fit.")
    along = [*factor.shape, *[1] * (rank - axis - factor.ndim)]
    names = [
        writer.constant(layer, k, v.reshape(along)) for k, v in zip(("factor", "bias"), (factor, *bias), strict=False)
    ]
    if not bias:
        writer.make(layer, "Mul", [x, names[0]], rank)
        return
    writer.make(layer, "Add", [writer.inner(layer, "Mul", [x, names[0]], rank), names[1]], rank)


@layer_type("Eltwise")
def eltwise(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Products, sums with coefficients, or maxima of two bottoms or more."""
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
    first = reduce(lambda a, b: writer.inner(layer, op, [a, b], rank), tensors[:-1])
    writer.make(layer, op, [first, tensors[-1]], rank)


@layer_type("Concat")
def concat(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Concatenates along an axis, by default the channels."""
    param, tensors = layer.concat_param, writer.read(layer, None)
    axis = param.concat_dim if param.HasField("concat_dim") and not param.HasField("axis") else None
    axis = (param.axis if param.HasField("axis") else 1) if axis is None else axis
    writer.make(layer, "Concat", tensors, writer.ranks[tensors[0]], axis=axis)


@layer_type("Softmax")
def softmax(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Softmax along an axis, by default the channels."""
    (x,) = writer.read(layer)
    param = layer.softmax_param
    writer.make(layer, "Softmax", [x], writer.ranks[x], axis=param.axis if param.HasField("axis") else 1)


@layer_type("Dropout")
def dropout(writer: Writer, layer: Any, _: list[Array]) -> None:
    """Has no effect at test time."""
    (x,) = writer.read(layer)
    writer.same(layer, x)
