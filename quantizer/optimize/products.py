"""Layers with weights as products of matrices, for methods that see every such layer as rows of weights times columns of inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import cast

from torch import Tensor
from torch.nn import functional

from quantizer.ir.graph import Graph, Node
from quantizer.optimize.running import Runner

WEIGHTED = ("fully_connected", "conv2d", "depthwise_conv2d")
"""Operators that are products: of rows, or of windows of each group of channels."""


def rows_of(node: Node, weights: Tensor, channels: int) -> Tensor:
    """Return weights [c_out, ...] as [groups, rows, columns]; *channels*: of the input."""
    return weights.reshape(_groups(node, channels), -1, weights[0].numel())


def columns_of(node: Node, values: Tensor, weights: Tensor) -> Tensor:
    """Return what each row of the weights is multiplied with, [groups, samples, columns]; operands in the operator's order."""
    if node.op == "fully_connected":
        return values[None]
    top, left, bottom, right = _numbers(node, "padding")
    windows = functional.unfold(
        functional.pad(values, (left, right, top, bottom)), tuple(weights.shape[2:]),
        dilation=_numbers(node, "dilation"), stride=_numbers(node, "stride"),
    )  # fmt: skip
    groups = _groups(node, values.shape[1])
    return windows.reshape(len(values), groups, -1, windows.shape[-1]).permute(1, 0, 3, 2).flatten(1, 2)


def second_moments(
    graph: Graph, runner: Runner, batches: Iterable[Mapping[str, Tensor]], count: int, layers: Collection[str]
) -> dict[str, Tensor]:
    """Return layer -> sum of x x^T over its inputs in the first *count* batches, [groups, columns, columns] in float64.

    The squared error of a row of weights that is off by d is d^T (sum of x x^T) d.
    """
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.name in layers and node.op in WEIGHTED:
            readers.setdefault(str(node.inputs[0]), []).append(node)
    found: dict[str, Tensor] = {}
    for feeds in islice(batches, count):
        for name, _, values in runner.forward(graph, feeds):
            for node in readers.get(name, ()):
                columns = columns_of(node, in_order(node, values), weights_of(graph, node)).double()
                moment = columns.mT @ columns
                found[node.name] = found[node.name] + moment if node.name in found else moment
    return found


def weights_of(graph: Graph, node: Node) -> Tensor:
    """Return the float weights of a layer, in the operator's order."""
    data = graph.tensor(str(node.inputs[1])).data
    assert data is not None
    return in_order(node, data.float())


def in_order(node: Node, values: Tensor) -> Tensor:
    """Return values of a file in the operator's order, or the other way round for two axes."""
    return values if node.op == "fully_connected" else values.movedim(-1, 1)


def _groups(node: Node, channels: int) -> int:
    if node.op == "depthwise_conv2d":
        return channels
    return cast("int", node.attrs["groups"]) if node.op == "conv2d" else 1


def _numbers(node: Node, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", node.attrs[name])
