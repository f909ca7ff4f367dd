"""Cuts a model at its edges into parts: one operator, the quantizations around it, and the clip right after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from quantizer.core.dtypes import DTYPES
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.dispatch import FP32, find_handler
from quantizer.runtime.onnx.kernels import Context

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
CLIPS = ("Relu", "Clip")
"""Operators that belong to the part before them, because engines fuse them with it."""
ALONE = "@alone"
"""Suffix of the name of an edge that a part computes separately."""


@dataclass(frozen=True)
class Part:
    """Nodes between edges: dequantizations of operands, an operator, clips after it, quantizations of its result."""

    name: str
    op: str
    nodes: tuple[Node, ...]
    """Its nodes in execution order, including the dequantizations of its operands."""
    operands: tuple[str, ...]
    """Edges that it reads; constants are not among them."""
    results: tuple[str, ...]
    """Edges that it produces."""

    @cached_property
    def core(self) -> Node:
        """The node of the operator itself, without its quantizations."""
        return next(node for node in self.nodes if node.name == self.name)


@dataclass(frozen=True)
class Parts:
    """A graph and its parts in order."""

    graph: Graph
    parts: tuple[Part, ...]

    @cached_property
    def edges(self) -> tuple[str, ...]:
        """Every tensor between parts, and every output, in the order of computation."""
        return tuple(name for part in self.parts for name in part.results)

    @cached_property
    def maker(self) -> Mapping[str, Part]:
        """Edge -> the part that produces it."""
        return {name: part for part in self.parts for name in part.results}

    def apart(self, known: Mapping[str, torch.Tensor]) -> Graph:
        """Return one graph of all parts side by side: each reads fed edges and produces `<edge>@alone`.

        *known* gives the shapes.
        """
        made = set(self.edges)
        read = {name for part in self.parts for name in part.operands}
        nodes = [
            replace(node, outputs=tuple(f"{name}{ALONE}" if name in made else name for name in node.outputs))
            for node in self._inner(made)
        ]
        tensors = {**self.graph.tensors}
        for name in read:
            tensors[name] = shaped(self.graph.tensor(name), known)
        tensors |= {
            f"{name}{ALONE}": replace(shaped(self.graph.tensor(name), known), name=f"{name}{ALONE}") for name in made
        }
        inputs = tuple(dict.fromkeys(name for part in self.parts for name in part.operands))
        used = {*inputs, *(name for node in nodes for name in (*node.reads, *node.outputs))}
        kept = {name: tensor for name, tensor in tensors.items() if name in used}
        return self.graph.with_(
            nodes=tuple(nodes), tensors=kept, inputs=inputs, outputs=tuple(f"{name}{ALONE}" for name in self.edges)
        )

    def cut(self, part: Part, known: Mapping[str, torch.Tensor]) -> Graph:
        """Return one part as a separate graph, with its real scales, constants and shapes."""
        names = (*part.operands, *(name for node in part.nodes for name in (*node.reads, *node.outputs)))
        found = {name: self.graph.tensor(name) for name in names}
        tensors = {name: shaped(tensor, known) if tensor.data is None else tensor for name, tensor in found.items()}
        bodies = {name: body for node in part.nodes for name, body in self.graph.bodies_of(node).items()}
        return self.graph.with_(
            name=part.name,
            nodes=part.nodes,
            tensors=tensors,
            inputs=part.operands,
            outputs=part.results,
            subgraphs=bodies,
        )

    def _inner(self, made: set[str]) -> list[Node]:
        """Return the nodes of all parts, each once. Tensors inside a part have their own names."""
        found: dict[int, Node] = {}
        for part in self.parts:
            inside = {name for node in part.nodes for name in node.outputs} & made
            for node in part.nodes:
                inputs = tuple(f"{n}{ALONE}" if n in inside else n for n in node.inputs)
                # a dequantization may belong to several parts
                found.setdefault(id(node), replace(node, inputs=inputs))
        return list(found.values())


def parts_of(graph: Graph) -> Parts:
    """Return the parts of *graph* of ONNX's operators. A quantization goes with the operator that it belongs to."""
    whole = _dequantizations(graph)
    taken: set[str] = set()
    parts: list[Part] = []
    for node in graph.order:
        if node.name in taken or node.name in whole:
            continue
        nodes = [node]
        while (behind := _behind(graph, nodes[-1])) is not None:
            nodes.append(behind)
        # a quantization with other readers beside it is a part of its own
        nodes += [q for name in nodes[-1].outputs for q in graph.consumers.get(name, ()) if _quantizes_alone(graph, q)]
        taken |= {item.name for item in nodes}
        parts.append(_part(graph, node, nodes, whole))
    return Parts(graph, tuple(part for part in parts if part.results))


def _part(graph: Graph, node: Node, nodes: Sequence[Node], whole: Mapping[str, Node]) -> Part:
    inner = {name for item in nodes for name in item.outputs}
    before = {
        name: graph.producers[name]
        for item in nodes
        for name in item.reads
        if name in graph.producers and graph.producers[name].name in whole and name not in inner
    }
    every = (*dict.fromkeys(before.values()), *nodes)
    inner |= {name for item in before.values() for name in item.outputs}
    operands = [name for item in every for name in item.reads if name not in inner and graph.tensor(name).data is None]
    own = {item.name for item in nodes}
    results = [
        name
        for item in nodes
        for name in item.outputs
        if not name.startswith(f"{item.name}#")
        and (name in graph.outputs or any(r.name not in own for r in graph.consumers.get(name, ())))
    ]
    return Part(node.name, node.op, every, tuple(dict.fromkeys(operands)), tuple(results))


def _dequantizations(graph: Graph) -> dict[str, Node]:
    """Return the dequantizations that belong to their readers' parts: all except those whose results are outputs."""
    return {
        node.name: node
        for node in graph.nodes
        if node.op == DEQUANTIZE and node.outputs[0] not in graph.outputs and graph.consumers.get(node.outputs[0])
    }


def _behind(graph: Graph, node: Node) -> Node | None:
    """Return the clip that is the only reader of a node's only result."""
    if len(node.outputs) != 1 or node.outputs[0] in graph.outputs or node.op == QUANTIZE:
        return None
    readers = graph.consumers.get(node.outputs[0], ())
    if len(readers) != 1 or readers[0].op not in CLIPS or readers[0].inputs[0] != node.outputs[0]:
        return None
    return readers[0]


def _quantizes_alone(graph: Graph, node: Node) -> bool:
    """Return whether a node is the only reader of a real tensor and quantizes it."""
    if node.op != QUANTIZE or node.inputs[0] is None or node.inputs[0] in graph.outputs:
        return False
    return len(graph.consumers[node.inputs[0]]) == 1


def shaped(tensor: Tensor, known: Mapping[str, torch.Tensor]) -> Tensor:
    """Return *tensor* with the shape of its values, if these are known."""
    values = known.get(tensor.name)
    return tensor if values is None else replace(tensor, shape=tuple(values.shape), ranked=True)


def with_constant_codes(graph: Graph) -> Graph:
    """Return *graph* with each quantized constant replaced by its codes, so that no part quantizes weights."""
    made: dict[str, Tensor] = {}
    kept: list[Node] = []
    handler = find_handler(QUANTIZE, FP32)
    assert handler is not None
    context = Context(graph, torch.device("cpu"))
    for node in graph.order:
        values = [None if name is None else graph.tensor(name).data for name in node.inputs]
        known = all(value is not None for name, value in zip(node.inputs, values, strict=True) if name is not None)
        if node.op != QUANTIZE or not known or node.outputs[0] in graph.outputs:
            kept.append(node)
            continue
        codes, name = handler(node, values, context), node.outputs[0]
        assert isinstance(codes, torch.Tensor)
        made[name] = replace(graph.tensor(name), shape=tuple(codes.shape), data=codes, ranked=True)
    if not made:
        return graph
    found = graph.with_(nodes=tuple(kept), tensors={**graph.tensors, **made})
    used = {*graph.inputs, *graph.outputs, *(name for node in kept for name in (*node.reads, *node.outputs))}
    return found.with_(tensors={name: tensor for name, tensor in found.tensors.items() if name in used})


def unquantized(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Return *graph* without quantizations, and a map from its tensors of codes to tensors of real values.

    A constant of codes becomes its real values.
    """
    same: dict[str, str] = {}
    codes: dict[str, str] = {}
    constants: dict[str, Tensor] = {}
    kept: list[Node] = []
    context = Context(graph, torch.device("cpu"))
    for node in graph.order:
        source = node.inputs[0]
        if node.op == QUANTIZE and source is not None:
            codes[node.outputs[0]] = same.get(source, source)
            if node.outputs[0] in graph.outputs:
                kept.append(node)
            continue
        if node.op == DEQUANTIZE and source is not None:
            if source in codes:
                same[node.outputs[0]] = codes[source]
                continue
            if graph.tensor(source).data is not None:
                handler = find_handler(DEQUANTIZE, FP32)
                assert handler is not None
                values = handler(node, [None if n is None else graph.tensor(n).data for n in node.inputs], context)
                assert isinstance(values, torch.Tensor)
                name = node.outputs[0]
                constants[name] = Tensor(name, tuple(values.shape), DTYPES["float32"], values)
                continue
        inputs = tuple(None if name is None else same.get(name, name) for name in node.inputs)
        kept.append(replace(node, inputs=inputs))
    outputs = tuple(dict.fromkeys(same.get(name, name) for name in graph.outputs))
    tensors = {**graph.tensors, **constants}
    used = {*graph.inputs, *outputs, *(name for node in kept for name in (*node.reads, *node.outputs))}
    found = graph.with_(
        nodes=tuple(kept), tensors={name: t for name, t in tensors.items() if name in used}, outputs=outputs
    )
    return found, codes
