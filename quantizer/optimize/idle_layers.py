"""Removes layers without effect from the quantized graph, as in the original: a Reshape to the shape of its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantizer.core.spec import Spec
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.numerics.rules import same_numbers
from quantizer.optimize.cfg import Options
from quantizer.optimize.per_layer import LayerKey


def without_idle_layers(
    graph: Graph,
    specs: Mapping[str, Spec],  # noqa: ARG001 - required by the common signature
    options: Options,  # noqa: ARG001
    keys: Mapping[str, LayerKey],  # noqa: ARG001
) -> Graph:
    """Return the graph without Reshapes that keep shape, format and parameters.

    Its readers read its input instead. An output of the graph keeps its name: the previous layer takes it over. If that
    layer makes an input or another output, the Reshape stays. A Reshape that no layer reads stays as well.
    """
    for name in [node.name for node in graph.order if node.op == "reshape"]:
        node = graph.node(name)
        if _idle(graph, node):
            graph = _without(graph, node)
    return graph


def _idle(graph: Graph, node: Node) -> bool:
    read, made = graph.tensor(str(node.inputs[0])), graph.tensor(node.outputs[0])
    return node.attrs["shape"] == read.shape == made.shape and _same_shape_and_type(read, made)


def _same_shape_and_type(a: Tensor, b: Tensor) -> bool:
    """Return whether equal bits in two tensors mean equal values."""
    if a.qparams is None or b.qparams is None:
        return a.dtype == b.dtype and a.qparams is b.qparams
    # same_numbers compares scales and zero points; the ends of the codes must be equal too
    ends = ((params.qmin, params.qmax) for params in (a.qparams, b.qparams))
    return same_numbers(a.qparams, b.qparams) and next(ends) == next(ends)


def _without(graph: Graph, node: Node) -> Graph:
    read, made = str(node.inputs[0]), node.outputs[0]
    if made not in graph.outputs:
        gone, kept = made, read
        if made not in graph.consumers:
            return graph
    # a name of an output must stay, so the tensor before takes it
    elif read in graph.producers and read not in graph.outputs:
        gone, kept = read, made
    else:
        return graph
    rest = [_renamed(other, gone, kept) for other in graph.nodes if other.name != node.name]
    return graph.with_(nodes=tuple(rest), tensors={name: own for name, own in graph.tensors.items() if name != gone})


def _renamed(node: Node, old: str, new: str) -> Node:
    inputs = tuple(new if name == old else name for name in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(new if name == old else name for name in node.outputs))
