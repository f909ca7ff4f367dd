"""Finds the declared defects of fused kernels that a graph meets, and the values that their predicates read."""

from __future__ import annotations

from typing import Any

from quantizer.conformance.fusion.cases import Built
from quantizer.core.defects import GRAPH_ATTRIBUTES
from quantizer.core.expressions import parse
from quantizer.core.library import load_library
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.models.parts import DEQUANTIZE, QUANTIZE


def known_where_fused(built: Built, system: Chosen, platform: str) -> dict[str, str]:
    """Return node -> declared defect of a fused kernel, for each node that meets one."""
    found = {}
    for defect in load_library().platforms[platform].graph_defects:
        if defect.engine != system.entry.name or system.version not in defect.versions:
            continue
        holds = parse(defect.predicate)
        for node in built.graph.nodes:
            if node.op == defect.op and holds(described(built.graph, node)):
                found[node.name] = f"{defect.id}: {defect.reason}"
    return found


def described(graph: Graph, node: Node) -> dict[str, Any]:
    """Return the values of `GRAPH_NAMES` for *node*."""
    source = graph.producers.get(str(node.inputs[0]))
    readers = graph.consumers.get(node.outputs[0], ())
    reader = readers[0] if len(readers) == 1 else None
    values = {
        "input_scale": _number(graph, source, DEQUANTIZE, 1),
        "input_zero_point": _number(graph, source, DEQUANTIZE, 2),
        "output_scale": _number(graph, reader, QUANTIZE, 1),
        "output_zero_point": _number(graph, reader, QUANTIZE, 2),
        "second": _scalar(_operand(graph, node, 1)),
        "third": _scalar(_operand(graph, node, 2)),
        "shape": _shape(_operand(graph, node, 0)),
        "second_shape": _shape(_operand(graph, node, 1)),
        "before": _before(graph, node.inputs[0]),
        "after": _after(graph, node.outputs[0]),
    }
    return values | {name: node.attrs.get(name, default) for name, default in GRAPH_ATTRIBUTES.items()}


def _operand(graph: Graph, node: Node, place: int) -> Tensor | None:
    name = node.inputs[place] if place < len(node.inputs) else None
    return None if name is None else graph.tensor(name)


def _shape(tensor: Tensor | None) -> tuple[int, ...]:
    return () if tensor is None else tuple(tensor.shape)


def _scalar(tensor: Tensor | None) -> float:
    """Return the value of a constant with one element; 0 for anything else."""
    data = None if tensor is None else tensor.data
    return 0.0 if data is None or data.numel() != 1 else float(data)


def _number(graph: Graph, node: Node | None, op: str, place: int) -> float:
    """Return the scale (*place* 1) or zero point (2) of *node*; 0 if its operator is not *op*, or if it is per axis."""
    return 0.0 if node is None or node.op != op else _scalar(_operand(graph, node, place))


def _before(graph: Graph, name: str | None) -> str:
    """Return the operator that computed a tensor before it was quantized; empty for an input or a constant."""
    maker = graph.producers.get(str(name))
    return (
        _before(graph, maker.inputs[0]) if maker and maker.op in (QUANTIZE, DEQUANTIZE) else maker.op if maker else ""
    )


def _after(graph: Graph, name: str) -> str:
    """Return the only operator that reads a tensor after it was quantized; empty if several or none read it."""
    readers = graph.consumers.get(name, ())
    if len(readers) != 1:
        return ""
    return _after(graph, readers[0].outputs[0]) if readers[0].op in (QUANTIZE, DEQUANTIZE) else readers[0].op
