"""Order of layers in a file: by the number of layers on the longest path from an input, as the original writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.graph import Graph, Node, Tensor


def by_generation(nodes: Iterable[Node]) -> list[Node]:
    """Sort nodes by their longest path from an input. Nodes with equal paths keep their order."""
    nodes = list(nodes)
    makers = {name: index for index, node in enumerate(nodes) for name in node.outputs}
    before = [{makers[name] for name in node.inputs if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, own in enumerate(before):
        for maker in own:
            readers[maker].append(index)
    waiting = [len(own) for own in before]
    generation, found = [index for index, count in enumerate(waiting) if not count], list[Node]()
    while generation:
        found += [nodes[index] for index in generation]
        following = []
        for index in generation:
            for reader in readers[index]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    following.append(reader)
        # layers of one generation stand in the order of the file, not in that in which they became ready
        generation = sorted(following)
    return found


def in_generations(graph: Graph) -> Graph:
    """Return the graph with sorted layers: inputs and constants come first."""
    sources = cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ()))
    first = tuple((place, node, values) for place, (_, node, values) in enumerate(sources))
    return graph.with_(nodes=tuple(by_generation(graph.nodes)), extra={**graph.extra, SOURCES: first})
