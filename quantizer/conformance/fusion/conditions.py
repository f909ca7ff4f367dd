"""Conditions on a graph, as narrow as those under which an engine rewrites."""

from __future__ import annotations

from collections.abc import Callable

import torch

from quantizer.ir.graph import Graph

Condition = Callable[[Graph], bool]


def numbers(graph: Graph, name: str) -> torch.Tensor:
    """Return the numbers of a constant."""
    found = graph.tensor(name).data
    assert found is not None
    return found


def equal(part: str, *names: str) -> Condition:
    """Return whether tensors have one scale, or one zero point."""
    return lambda graph: len({float(numbers(graph, f"{name}#{part}")) for name in names}) == 1


def one_shape(*names: str) -> Condition:
    """Return whether tensors have one shape."""
    return lambda graph: len({graph.tensor(name).shape for name in names}) == 1


def cubic(graph: Graph) -> bool:
    """Return whether the axes of the input but for the first have one size."""
    return len(set(graph.tensor("x").shape[1:])) == 1


def square(graph: Graph) -> bool:
    """Return whether a layer has as many outputs as inputs."""
    return len(set(graph.tensor("w#codes").shape)) == 1
