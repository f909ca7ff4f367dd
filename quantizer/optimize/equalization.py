"""Cross-layer equalization: scale each channel between two layers so that both layers' weights have equal ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor

FIRST = ("conv2d", "fully_connected")
HOMOGENEOUS = ("relu", "max_pool2d", "avg_pool2d")
"""Operators that scale with their input, channel by channel."""


def equalized(graph: Graph, concerns: Callable[[Node], bool], rounds: int) -> Graph:
    """Return the graph with the weights of every pair of layers equalized, *rounds* times over.

    Source: Nagel et al. 2019: with ranges r1 and r2 of a channel's weights in both layers, the first is divided and the
    second multiplied by `sqrt(r1 / r2)`; layers between them are scaled, too, so that the float graph computes the
    same.
    """
    pairs = [pair for pair in _pairs(graph) if concerns(pair[0]) and concerns(pair[1])]
    for _ in range(rounds):
        for first, second in pairs:
            weights, others = (graph.tensor(str(node.inputs[1])).data for node in (first, second))
            assert weights is not None
            assert others is not None
            # [channels]: in files, weights have the channels that they produce as their first axis
            ranges = weights.flatten(1).abs().amax(1)
            # in files, weights have the channels that they read as their last axis
            following = others.movedim(-1, 0).flatten(1).abs().amax(1)
            # a channel whose weights are all 0 in one of the layers has no ratio
            usable = (ranges > 0) & (following > 0)
            factor = torch.where(usable, (ranges / following).sqrt(), torch.ones_like(ranges))
            graph = scaled(graph, first, second, factor)
    return graph


def scaled(graph: Graph, first: Node, second: Node, factor: Tensor) -> Graph:
    """Return the graph with each channel after *first* divided by its factor, and *second* multiplied by it.

    The constants of *first* have the channel axis first, the weights of *second* last (the order in files).
    """
    changed = [_times(graph, name, 1.0 / factor, 0) for name in first.inputs[1:] if name is not None]
    return graph.with_tensors(*changed, _times(graph, str(second.inputs[1]), factor, -1))


def owns_constants(graph: Graph, node: Node) -> bool:
    """Return whether no other node reads the node's constants."""
    names = [name for name in node.inputs[1:] if name is not None]
    return all(graph.tensor(name).data is not None and len(graph.consumers[name]) == 1 for name in names)


def _times(graph: Graph, name: str, factor: Tensor, axis: int) -> GraphTensor:
    tensor = graph.tensor(name)
    assert tensor.data is not None
    along = [-1 if place == axis % tensor.data.dim() else 1 for place in range(tensor.data.dim())]
    return replace(tensor, data=(tensor.data * factor.to(tensor.data.dtype).reshape(along)))


def _pairs(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield (first, second): pairs of layers between which each channel is only passed on, or scaled."""
    for node in graph.order:
        if node.op not in FIRST or not owns_constants(graph, node):
            continue
        last = node
        while last.activation in ("none", "relu"):
            (made,) = last.outputs
            readers = graph.consumers.get(made, ())
            # another reader would see the scaled tensor
            if len(readers) != 1 or made in graph.outputs:
                break
            last = readers[0]
            # a grouped layer reads a slice of the channels per group, so its last axis is not all of them
            if last.op in FIRST:
                if last.attrs.get("groups", 1) == 1 and owns_constants(graph, last) and last.inputs[0] == made:
                    yield node, last
                break
            if last.op not in HOMOGENEOUS:
                break
