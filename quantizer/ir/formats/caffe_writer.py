"""Helpers of all readers of Caffe layers: the graph under construction, and access to a layer's fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, checker, helper, numpy_helper, shape_inference

from quantizer.core.errors import FormatError, GraphError, UnsupportedError
from quantizer.ir.formats.onnx_fatal import refuse_fatal

Array = np.ndarray[Any, Any]
Layer = Callable[["Writer", Any, list[Array]], None]
LAYERS: dict[str, Layer] = {}
LARGEST_SIZE = 1 << 24
OPSET, IR_VERSION = 13, 8


class Writer:
    """Collects nodes and constants; a layer that writes into its own bottom makes a new tensor."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.ranks: dict[str, int] = {}
        """Number of axes of each tensor."""
        self.known: dict[str, list[int]] = {}
        """Shapes that ONNX's inference gets wrong, because it counts windows of pools that begin beyond their
        operand."""
        self._now: dict[str, str] = {}
        """Caffe's blob -> the tensor that it currently stands for."""
        self._made_for: dict[str, str] = {}
        """Tensor -> the blob under which its layer made it."""
        self._unread: dict[str, None] = {}
        """Tops that no layer has read: the network's outputs, in the order in which they are made."""

    def add_input(self, name: str, shape: Sequence[int]) -> None:
        """Declare an input of fixed *shape*; GraphError if a blob of that name exists."""
        if not shape or not all(0 < size <= LARGEST_SIZE for size in shape):
            raise FormatError(f"input {name!r} has shape {list(shape)}: every size must lie in [1, {LARGEST_SIZE}].")
        if name in self._now:
            raise GraphError(f"blob {name!r}: two outputs or inputs have this name. Rename one.")
        self.inputs[name], self._now[name], self.ranks[name] = tuple(int(size) for size in shape), name, len(shape)

    def read(self, layer: Any, count: int | None = 1) -> list[str]:
        """Return the tensors that a layer reads; *count*: their required number, None for one or more."""
        if len(layer.bottom) != count and not (count is None and layer.bottom):
            raise GraphError(f"{len(layer.bottom)} bottoms: must be {'at least 1' if count is None else count}.")
        for name in layer.bottom:
            if name not in self._now:
                raise GraphError(f"bottom {name!r}: must be an output of an earlier layer.")
            self._unread.pop(name, None)
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
        self._set(top, made)
        self._made_for[made] = top
        return made

    def make_several(self, layer: Any, op: str, inputs: Sequence[str], rank: int, **attrs: Any) -> None:
        """Add the node that makes all of the layer's tops."""
        made: list[str] = []
        for top in [self._named(layer, name) for name in layer.top]:
            made.append(self.free(top))
            self.ranks[made[-1]] = rank
            self._set(top, made[-1])
            self._made_for[made[-1]] = top
        self.nodes.append(helper.make_node(op, list(inputs), made, name=layer.name, **attrs))

    def several(self, layer: Any, tensors: Sequence[str]) -> None:
        """Map the layer's tops to existing tensors."""
        for top, tensor in zip([self._named(layer, name) for name in layer.top], tensors, strict=True):
            self._set(top, tensor)

    def same(self, layer: Any, tensor: str) -> None:
        """Map the layer's top to an existing tensor."""
        self._set(self._top(layer), tensor)

    def _set(self, top: str, tensor: str) -> None:
        self._now[top] = tensor
        # a dict without values: a set that keeps the order
        self._unread[top] = None

    def _top(self, layer: Any) -> str:
        if len(layer.top) != 1:
            raise UnsupportedError(f"{len(layer.top)} tops: must be 1.")
        return self._named(layer, layer.top[0])

    def _named(self, layer: Any, name: str) -> str:
        if name in self._now and name not in layer.bottom:
            raise GraphError(f"blob {name!r}: two outputs or inputs have this name. Rename one.")
        return name

    def _node(self, name: str, op: str, inputs: Sequence[str], made: str, rank: int, attrs: dict[str, Any]) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [made], name=name, **attrs))
        self.ranks[made] = rank
        return made

    def sizes(self, tensor: str) -> list[int] | None:
        """Return the shape of a tensor by ONNX's shape inference over the nodes so far; None if it does not follow.

        Only constants that can hold a shape keep their values.
        """
        # int64 constants are shapes, axes and bounds, whose values decide sizes; of others the shape is enough
        held = {n: v for n, v in self.constants.items() if v.dtype == np.int64}
        shapes = {**self.inputs, **{n: v.shape for n, v in self.constants.items() if n not in held}, **self.known}
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(shape)) for n, shape in shapes.items()]
        nodes = [node for node in self.nodes if node.output[0] not in self.known]
        # an output under a new name: the tensor may be an input of this model, which cannot be its output as well
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
        """Return the tops that no layer reads, in order.

        A top that is another tensor (a part, a copy, a Dropout's) gets a node that gives it its own name.
        """
        return [self._output(top) for top in self._unread]

    def _output(self, top: str) -> str:
        tensor = self._now[top]
        if self._made_for.get(tensor) == top and not any(tensor in node.input for node in self.nodes):
            return tensor
        made = self.free(top)
        return self._node(f"{made}#Identity", "Identity", [tensor], made, self.ranks[tensor], {})


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
    """Return the axis that a layer names, counted from 0."""
    axis: int = getattr(param, key) if param.HasField(key) else default
    if not -rank <= axis < rank:
        raise FormatError(f"{key}={axis}: must lie in [{-rank}, {rank - 1}].")
    return axis % rank


def said(param: Any, key: str, default: Any) -> Any:
    """Return the value of a field, by default Caffe's."""
    return getattr(param, key) if param.HasField(key) else default
