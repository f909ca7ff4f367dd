"""Treats layers with weights as matrix products: rows of weights times columns of inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from quantizer.ir.graph import Graph, Node
from quantizer.optimize.running import Runner

WEIGHTED = ("fully_connected", "conv2d", "depthwise_conv2d")
"""Operators that are products of weights and rows, or of weights and windows of each group of channels."""


def groups_of(node: Node, weights: Tensor) -> int:
    """Return the number of independent products into which the rows of the weights fall."""
    if node.op == "depthwise_conv2d":
        return len(weights)
    return cast("int", node.attrs["groups"]) if node.op == "conv2d" else 1


def columns_of(node: Node, values: Tensor, weights: Tensor) -> list[Tensor]:
    """Return the matrix that the rows of each group are multiplied with, [columns, samples].

    Windows are listed by channel: all places of the first, then of the next.
    """
    if node.op == "fully_connected":
        return [values.reshape(-1, values.shape[-1]).t()]
    top, left, bottom, right = _numbers(node, "padding")
    windows = functional.unfold(
        functional.pad(values.movedim(-1, 1), (left, right, top, bottom)),
        tuple(weights.shape[1:3]),
        dilation=_numbers(node, "dilation"),
        stride=_numbers(node, "stride"),
    )
    # [samples, c * kh * kw, places] -> [c * kh * kw, samples * places]
    found = windows.permute(1, 0, 2).flatten(1)
    channels = values.shape[-1]
    groups = channels if node.op == "depthwise_conv2d" else groups_of(node, weights)
    # unfold lists channels in order, so the rows of a group are neighbours
    return list(found.reshape(groups, -1, found.shape[-1]))


def second_moments(
    graph: Graph, runner: Runner, batches: Iterable[Mapping[str, Tensor]], count: int, nodes: Sequence[Node]
) -> dict[str, list[Tensor]]:
    """Return layer -> twice the mean of x x^T over its inputs in the first *count* batches.

    One matrix [columns, columns] for each group.

    The mean is over samples, not over their windows, and is a running mean in float32.
    """
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        readers.setdefault(str(node.inputs[0]), []).append(node)
    found: dict[str, list[Tensor]] = {}
    before = 0
    for feeds in islice(batches, max(1, count)):
        size = len(next(iter(feeds.values())))
        for name, _, values in runner.forward_in_types(graph, feeds):
            for node in readers.get(name, ()):
                columns = columns_of(node, values, weights_of(graph, node))
                # each factor gets the root of 2 / n, so that their product gets 2 / n
                own = [math.sqrt(2.0 / (before + size)) * group.float() for group in columns]
                moments = found.get(node.name) or [torch.zeros(len(group), len(group)) for group in own]
                found[node.name] = [
                    moment * (before / (before + size)) + group.matmul(group.t())
                    for moment, group in zip(moments, own, strict=True)
                ]
        before += size
    return found


def weights_of(graph: Graph, node: Node) -> Tensor:
    """Return the float weights of a layer in the file's order."""
    data = graph.tensor(str(node.inputs[1])).data
    assert data is not None
    return data.float()


def in_order(node: Node, values: Tensor) -> Tensor:
    """Return values that are in the file's order in the operator's order."""
    return values if node.op == "fully_connected" else values.movedim(-1, 1)


def _numbers(node: Node, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", node.attrs[name])
