"""SmoothQuant: scales down wide channels of a normalization, and scales up the weights after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from quantizer.ir.graph import Graph, Node
from quantizer.optimize.equalization import owns_constants, scaled
from quantizer.optimize.running import Runner

NORMALIZATIONS = ("layer_norm", "batch_norm")
SMALLEST = 1e-5
"""The smallest factor, so that a channel that is always 0 stays unchanged."""


def smoothed(
    graph: Graph,
    runner: Runner,
    batches: Iterable[Mapping[str, Tensor]],
    concerns: Callable[[Node], bool],
    alpha: float,
) -> Graph:
    """Return the graph with each normalization before a fully connected layer smoothed; it computes the same.

    Source: Xiao et al. 2022: channel j is divided by `max|x_j|**alpha / max|w_j|**(1 - alpha)`, its weights multiplied.
    """
    pairs = {node.outputs[0]: (node, reader) for node, reader in _pairs(graph) if concerns(node) and concerns(reader)}
    largest: dict[str, Tensor] = {}
    for feeds in batches if pairs else ():
        for name, _, values in runner.forward(graph, feeds):
            if name in pairs:
                # [channels], over samples and places
                reach = values.flatten(0, -2).abs().amax(0)
                largest[name] = torch.maximum(largest[name], reach) if name in largest else reach
    for name, (node, reader) in pairs.items():
        weights = graph.tensor(str(reader.inputs[1])).data
        assert weights is not None
        # the weights are [outputs, channels]
        reach, following = largest[name], weights.abs().amax(0)
        factor = (reach**alpha / following.clamp(min=SMALLEST) ** (1.0 - alpha)).clamp(min=SMALLEST)
        usable = (reach > 0) & (following > 0)
        graph = scaled(graph, node, reader, torch.where(usable, factor, torch.ones_like(factor)))
    return graph


def _pairs(graph: Graph) -> list[tuple[Node, Node]]:
    """Return pairs of a fully connected layer and the normalization before it, which has no other reader."""
    found = []
    for node in graph.order:
        made = node.outputs[0]
        readers = graph.consumers.get(made, ())
        if node.op not in NORMALIZATIONS or node.activation != "none" or len(readers) != 1 or made in graph.outputs:
            continue
        rank = len(graph.tensor(made).shape)
        last = node.attrs["axis"] in (-1, rank - 1)
        given = len(node.inputs) > 1 and node.inputs[1] is not None
        both = owns_constants(graph, node) and owns_constants(graph, readers[0])
        if last and given and both and readers[0].op == "fully_connected" and readers[0].inputs[0] == made:
            found.append((node, readers[0]))
    return found
