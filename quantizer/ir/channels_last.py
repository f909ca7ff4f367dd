"""Converts graphs of the registry's operators to channels-last order, which Compass uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from quantizer.core.spec import Spec
from quantizer.ir.graph import Graph, Node, Tensor

SUFFIX = "#last"
ALONG = {
    "batch_norm": "axis",
    "concat": "axis",
    "softmax": "axis",
    "argmax": "axis",
    "argmin": "axis",
    "reduce_l2": "axes",
    "reduce_max": "axes",
    "reduce_mean": "axes",
    "reduce_min": "axes",
    "reduce_prod": "axes",
    "reduce_sum": "axes",
}
"""Operators that can run in both orders -> the attribute that names an axis."""


def channels_last(graph: Graph, specs: Mapping[str, Spec]) -> Graph:
    """Return *graph* with its spatial nodes channels last, and transposes only where the order must change.

    An element-wise node after a spatial node, or one whose axis can be renumbered, keeps that node's order.
    Inputs and outputs of the graph keep names, shapes and order.
    """
    work = _Work(graph, specs)
    for node in graph.order:
        work.add(node)
    for name in graph.outputs:
        # callers know the outputs by the order that they have now
        work.first(name)
    used = {name for node in work.nodes for name in (*node.reads, *node.outputs)} | {*graph.inputs, *graph.outputs}
    tensors = {name: tensor for name, tensor in work.tensors.items() if name in used}
    return graph.with_(nodes=tuple(work.nodes), tensors=tensors)


@dataclass
class _Work:
    """The graph under construction; a tensor `t` in the other order is `t#last`."""

    graph: Graph
    specs: Mapping[str, Spec]
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        constants = {name for name, tensor in self.graph.tensors.items() if tensor.is_constant}
        self.tensors = {name: self.graph.tensor(name) for name in (*self.graph.inputs, *constants)}

    def add(self, node: Node) -> None:
        """Add a node in the order that its operator or its operands require."""
        spec = self.specs.get(node.op)
        if spec is None or node.order == "channels_last" or node.transposed:
            self._as_it_is(node)
        elif any(item.spatial for item in spec.inputs.values()):
            self._spatial(node, spec)
        elif self._may_stay(node, spec):
            self._in_place(node)
        else:
            self._as_it_is(node)

    def first(self, name: str) -> str:
        """Return tensor *name* in its first order, transposed back if it exists only in the other one."""
        if name not in self.tensors:
            rank = len(self.graph.tensor(name).shape)
            self._transpose(f"{name}{SUFFIX}", self.graph.tensor(name), (0, rank - 1, *range(1, rank - 1)))
        return name

    def last(self, name: str) -> str:
        """Return the name of the tensor with its channel last; a constant is rearranged directly."""
        other, tensor = f"{name}{SUFFIX}", self.graph.tensor(name)
        if other in self.tensors:
            return other
        moved = _moved(tensor, other)
        if moved.data is not None:
            self.tensors[other] = moved
        else:
            rank = len(tensor.shape)
            self._transpose(name, moved, (0, *range(2, rank), 1))
        return other

    def _transpose(self, source: str, target: Tensor, perm: tuple[int, ...]) -> None:
        self.tensors[target.name] = target
        label = f"{target.name}_transpose"
        self.nodes.append(Node(label, "transpose", (source,), (target.name,), {"perm": perm}, "channels_last"))

    def _as_it_is(self, node: Node) -> None:
        for name in node.reads:
            self.first(name)
        for name in node.outputs:
            self.tensors[name] = self.graph.tensor(name)
        self.nodes.append(node)

    def _spatial(self, node: Node, spec: Spec) -> None:
        inputs = [
            None if name is None else self.last(name) if item.spatial and self._rank(name) > 2 else self.first(name)
            for name, item in zip(node.inputs, spec.inputs.values(), strict=True)
        ]
        outputs = [
            self._made(name) if item.spatial and self._rank(name) > 2 else self._kept(name)
            for name, item in zip(node.outputs, spec.outputs.values(), strict=True)
        ]
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=tuple(outputs), order="channels_last"))

    def _made(self, name: str) -> str:
        moved = _moved(self.graph.tensor(name), f"{name}{SUFFIX}")
        self.tensors[moved.name] = moved
        return moved.name

    def _kept(self, name: str) -> str:
        self.tensors[name] = self.graph.tensor(name)
        return name

    def _rank(self, name: str) -> int:
        return len(self.graph.tensor(name).shape)

    def _may_stay(self, node: Node, spec: Spec) -> bool:
        """Return whether the node can run with the channel last, and one of its operands exists only in that order."""
        # without keepdims the result has fewer axes, and its order would be neither of the two
        if not _is_pointwise(spec) and (node.op not in ALONG or node.attrs.get("keepdims") is False):
            return False
        rank = max(self._rank(name) for name in node.outputs)
        computed = [name for name in node.reads if not self.graph.tensor(name).is_constant]
        # only then does staying save a transpose
        there = any(name not in self.tensors for name in computed)
        return rank > 2 and there and all(self._rank(name) == rank for name in computed)

    def _in_place(self, node: Node) -> None:
        rank = self._rank(node.outputs[0])
        weights = {
            name
            for (key, item), name in zip(self.specs[node.op].inputs.items(), node.inputs, strict=True)
            if item.role != "activation"
        }
        inputs = [None if n is None else n if n in weights else self._broadcast(n, rank) for n in node.inputs]
        attrs = dict(node.attrs)
        key = ALONG.get(node.op)
        if key == "axis":
            attrs["axis"] = _renumbered(cast("int", attrs["axis"]), rank)
        elif key == "axes":
            # renumbering does not keep the order, and specs list axes in ascending order
            attrs["axes"] = tuple(sorted(_renumbered(axis, rank) for axis in cast("tuple[int, ...]", attrs["axes"])))
        outputs = tuple(self._made(name) for name in node.outputs)
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=outputs, attrs=attrs, order="channels_last"))

    def _broadcast(self, name: str, rank: int) -> str:
        """Return an operand in the other order; a constant of fewer axes first gets leading axes of size 1."""
        tensor = self.graph.tensor(name)
        if tensor.data is None or len(tensor.shape) == rank:
            return self.last(name)
        # one number broadcasts in every order
        if tensor.data.numel() == 1:
            return name
        shape = (*[1] * (rank - len(tensor.shape)), *tensor.shape)
        other = _moved(replace(tensor, shape=shape, data=tensor.data.reshape(shape)), f"{name}{SUFFIX}{rank}")
        self.tensors[other.name] = other
        return other.name


def _is_pointwise(spec: Spec) -> bool:
    """Return whether each element of the result comes from the same element of each operand."""
    if not isinstance(spec.tiling, dict) or set(spec.tiling) != {"*"}:
        return False
    rule = spec.tiling["*"]
    return rule.rule == "independent" and rule.when is None and rule.input_axis is None


def _renumbered(axis: int, rank: int) -> int:
    """Return the new number of an axis after axis 1 has become the last."""
    axis %= rank
    return axis if axis == 0 else rank - 1 if axis == 1 else axis - 1


def _moved(tensor: Tensor, name: str) -> Tensor:
    """Return *tensor* called *name* with its axis 1 at the end."""
    shape = (tensor.shape[0], *tensor.shape[2:], tensor.shape[1])
    params = tensor.qparams
    if params is not None and params.axis is not None:
        params = replace(params, axis=_renumbered(params.axis, len(shape)))
    data = None if tensor.data is None else tensor.data.movedim(1, -1).contiguous()
    return replace(tensor, name=name, shape=shape, data=data, qparams=params)
