"""Conditions on a graph, as narrow as those that engines check before they rewrite."""

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
    """Return a condition: the tensors *names* have equal scales, or equal zero points (*part*)."""
    return lambda graph: len({float(numbers(graph, f"{name}#{part}")) for name in names}) == 1


def one_shape(*names: str) -> Condition:
    """Return a condition: the tensors *names* have equal shapes."""
    return lambda graph: len({graph.tensor(name).shape for name in names}) == 1


def cubic(graph: Graph) -> bool:
    """Return whether all axes of the input except the first have the same size."""
    return len(set(graph.tensor("x").shape[1:])) == 1


def square(graph: Graph) -> bool:
    """Return whether a layer has as many outputs as inputs."""
    return len(set(graph.tensor("w#codes").shape)) == 1
