"""The graph type that all passes, formats and engines share: nodes, tensors, and comparison of graphs."""

from __future__ import annotations

import dataclasses
import difflib
import graphlib
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch

from quantizer.core.case import AxisOrder
from quantizer.core.dtypes import DType
from quantizer.core.errors import GraphError
from quantizer.numerics.qparams import QParams

AttrValue: TypeAlias = "bool | int | float | str | DType | tuple[AttrValue, ...]"
_TORCH = {
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}
ON_CODES = "on_codes"
"""Key of Node.extra: whether the file has the node and the quantizations around it as one operator on codes."""
FREE = -1
"""A size that is known only when the graph runs."""
LARGEST = 1 << 31
"""Largest number of bytes of a tensor: the size limit of a protobuf file."""


def check_size(where: str, shape: Iterable[int], size: int) -> None:
    """Raise GraphError, before anything is allocated, if *shape* with *size* bytes a value needs more than LARGEST."""
    sizes = list(shape)
    if math.prod(sizes) * size > LARGEST:
        raise GraphError(
            f"{where}: shape {sizes} of {size} bytes a value: more than {LARGEST} bytes, which no tensor may have."
        )


def container(dtype: DType) -> torch.dtype:
    """Return the torch type that holds values of *dtype*, one value per element (narrow floats as raw codes)."""
    found = _TORCH.get(dtype.name) or getattr(torch, dtype.storage)
    assert isinstance(found, torch.dtype)
    return found


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named value of the graph, in the axis order of the node that makes it."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    data: torch.Tensor | None = None
    """The values of a constant, of type `container(dtype)`."""
    qparams: QParams | None = None
    ranked: bool = True
    """False where even the number of axes is known only when the graph runs; `shape` is then ()."""

    @property
    def is_constant(self) -> bool:
        """True when the value is known before the graph runs."""
        return self.data is not None


@dataclass(frozen=True, eq=False)
class Node:
    """One operator of the graph; `op` is ours, or the foreign name of an operator that we do not have."""

    name: str
    op: str
    inputs: tuple[str | None, ...]
    """Tensor names in the order of the spec's inputs; None for an absent optional input."""
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    order: AxisOrder = "channels_first"
    extra: Mapping[str, object] = field(default_factory=dict)
    """Data that a format must keep: parameters under the format's own names, or constants as `Tensor`."""
    parameters: object | None = None
    """The result of the quantize rule (numerics.qparams.Parameters), after quantization."""
    activation: str = "none"
    """The fused activation: none, relu, relu6, clip, leakyrelu or prelu."""
    activation_attrs: Mapping[str, object] = field(default_factory=dict)
    """Its arguments: `low` and `high` of a clip; the `slope` of a leakyrelu, or of a prelu (a torch.Tensor)."""
    transposed: tuple[str, ...] = ()
    """Inputs, by the spec's names, whose last two axes the operator reads swapped."""
    captures: tuple[str, ...] = ()
    """Tensors of enclosing graphs that the bodies of a control-flow node read."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Every tensor that the node needs, also those that its bodies read."""
        return (*(name for name in self.inputs if name is not None), *self.captures)


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes over named tensors.

    An input comes from the caller, or from a node without inputs (a file's Input layer).
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    extra: Mapping[str, object] = field(default_factory=dict)
    """Header data that a format must keep."""
    subgraphs: Mapping[str, Graph] = field(default_factory=dict)
    """Bodies of control-flow nodes by name. A body may read tensors of this graph; it lists them itself."""
    dynamic: bool = False
    """Whether sizes may be FREE or 0, and constants NaN: only runtime.torch_executor runs such a graph."""

    def bodies_of(self, node: Node) -> dict[str, Graph]:
        """Return the bodies of a control-flow node by name, empty for any other node."""
        named = (value for value in node.attrs.values() if isinstance(value, str))
        return {name: self.subgraphs[name] for name in named if name in self.subgraphs}

    @cached_property
    def _nodes_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Tensor -> the node that makes it."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Tensor -> the nodes that read it, in node order, each once."""
        found: dict[str, dict[int, Node]] = {}
        for node in self.nodes:
            for name in node.reads:
                # a node that reads a tensor twice counts once
                found.setdefault(name, {})[id(node)] = node
        return {name: tuple(nodes.values()) for name, nodes in found.items()}

    @property
    def operators(self) -> frozenset[str]:
        """The operators of all nodes, also those in bodies."""
        inner = (body.operators for body in self.subgraphs.values())
        return frozenset(node.op for node in self.nodes).union(*inner)

    @cached_property
    def order(self) -> tuple[Node, ...]:
        """The nodes in an order in which each follows its producers; `nodes` itself if it has that order already."""
        before: dict[int, list[int]] = {}
        index = {id(node): i for i, node in enumerate(self.nodes)}
        for i, node in enumerate(self.nodes):
            makers = (self.producers.get(name) for name in node.reads)
            before[i] = [index[id(maker)] for maker in makers if maker is not None]
        # most files list their nodes in order already
        if all(j < i for i, earlier in before.items() for j in earlier):
            return self.nodes
        try:
            return tuple(self.nodes[i] for i in graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError as err:
            names = " -> ".join(self.nodes[i].name for i in err.args[1])
            raise GraphError(f"graph {self.name!r}: cycle {names}: a node must not depend on its own output.") from None

    def node(self, name: str) -> Node:
        """Return the node called *name*; GraphError names the nearest."""
        try:
            return self._nodes_by_name[name]
        except KeyError:
            raise GraphError(f"graph {self.name!r}: no node {name!r}.{nearest(name, self._nodes_by_name)}") from None

    def tensor(self, name: str) -> Tensor:
        """Return the tensor called *name*; GraphError names the nearest."""
        try:
            return self.tensors[name]
        except KeyError:
            raise GraphError(f"graph {self.name!r}: no tensor {name!r}.{nearest(name, self.tensors)}") from None

    def with_(self, **changes: object) -> Graph:
        """Return this graph with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def with_node(self, node: Node) -> Graph:
        """Return this graph with *node* replacing the node of the same name."""
        old = self.node(node.name)
        return replace(self, nodes=tuple(node if item is old else item for item in self.nodes))

    def with_tensors(self, *tensors: Tensor) -> Graph:
        """Return this graph with *tensors* added. Each replaces a tensor of the same name."""
        return replace(self, tensors={**self.tensors, **{item.name: item for item in tensors}})


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' with the nearest of *known*, or ""."""
    # difflib compares with each name, which takes too long for the names of a large model
    close = difflib.get_close_matches(name, list(known)[:2000], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def same(a: Graph, b: Graph) -> str | None:
    """Return the first difference of two graphs as a sentence, or None. Numbers are compared bit for bit."""
    return difference("graph", a, b)


def difference(where: str, a: object, b: object) -> str | None:
    """Return the first difference of two values as a sentence that starts with *where*, or None."""
    if a is b:
        return None
    if type(a) is not type(b) and not (isinstance(a, Mapping) and isinstance(b, Mapping)):
        return f"{where}: {_short(a)} ({type(a).__name__}) against {_short(b)} ({type(b).__name__})."
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _values_differ(where, a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _mappings_differ(where, a, b)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return _sequences_differ(where, a, b)
    if isinstance(a, float) and isinstance(b, float):
        # bits, because 0.0 == -0.0, and NaN does not equal itself
        return None if struct.pack("<d", a) == struct.pack("<d", b) else f"{where}: {a!r} against {b!r}."
    if dataclasses.is_dataclass(a):
        for item in dataclasses.fields(a):
            found = difference(f"{where}.{item.name}", getattr(a, item.name), getattr(b, item.name))
            if found:
                return found
        return None
    return None if a == b else f"{where}: {_short(a)} against {_short(b)}."


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _mappings_differ(where: str, a: Mapping[Any, object], b: Mapping[Any, object]) -> str | None:
    for key in (*a, *b):
        if key not in a or key not in b:
            return f"{where}[{key!r}]: only in the {'first' if key in a else 'second'}."
        found = difference(f"{where}[{key!r}]", a[key], b[key])
        if found:
            return found
    return None


def _sequences_differ(
    where: str, a: tuple[object, ...] | list[object], b: tuple[object, ...] | list[object]
) -> str | None:
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        label = f"{i} {left.name!r}" if isinstance(left, Node) else str(i)
        found = difference(f"{where}[{label}]", left, right)
        if found:
            return found
    return None if len(a) == len(b) else f"{where}: {len(a)} items against {len(b)}."


def _values_differ(where: str, a: torch.Tensor, b: torch.Tensor) -> str | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{where}: {a.dtype} {list(a.shape)} against {b.dtype} {list(b.shape)}."
    if a.numel() == 0:
        return None
    # [elements, bytes of one]: bits tell 0.0 from -0.0 and let equal NaNs be equal
    left, right = (t.detach().contiguous().reshape(-1).view(torch.uint8).reshape(a.numel(), -1) for t in (a, b))
    unequal = (left != right).any(dim=1)
    if not bool(unequal.any()):
        return None
    first = int(unequal.nonzero()[0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), a.shape)]
    return f"{where}{index}: {a.reshape(-1)[first].item()!r} against {b.reshape(-1)[first].item()!r}."
