"""Error analysis by operation: compares a quantized graph with the same graph in float, in PPQ's two ways.

Graph-wise: everything is quantized, each operation's result is compared. Layer-wise: one operation is quantized at a
time, the graph's outputs are compared. Measures over all batches: SQNR in dB (larger is better), cosine, mean squared
error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tabulate import tabulate
from torch import Tensor
from tqdm import tqdm

from quantizer.core.errors import GraphError
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.pinned import pinned
from quantizer.runtime.hooks import is_quantable
from quantizer.runtime.torch_executor import TorchExecutor


@dataclass
class Sums:
    """The sums from which the measures follow, accumulated over batches in float64."""

    signal: float = 0.0
    noise: float = 0.0
    found: float = 0.0
    product: float = 0.0
    count: int = 0

    def add(self, reference: Tensor, value: Tensor) -> None:
        """Count one tensor; GraphError if shapes differ."""
        if reference.shape != value.shape:
            raise GraphError(f"shapes {list(reference.shape)} and {list(value.shape)} cannot be compared.")
        a, b = reference.double(), value.double()
        self.signal += float((a * a).sum())
        self.noise += float(((a - b) ** 2).sum())
        self.found += float((b * b).sum())
        self.product += float((a * b).sum())
        self.count += a.numel()


@dataclass(frozen=True)
class OperationError:
    """The error that is attributed to one operation."""

    name: str
    op: str
    sqnr: float
    """10 * log10(signal power / noise power); infinite without noise."""
    cosine: float
    mse: float


@pinned()
def graphwise_error_analyse(graph: Graph, batches: Iterable[Any]) -> list[OperationError]:
    """Return the error of each quantized operation's first result, in order, with all of the graph quantized."""
    nodes = quantized_nodes(graph)
    names = [node.outputs[0] for node in nodes]
    exact, quantized = TorchExecutor(exact_form(graph)), TorchExecutor(graph)
    sums = [Sums() for _ in nodes]
    for batch in tqdm(listed(batches), unit="batch", desc="graph-wise", disable=None, file=sys.stderr):
        for kept, a, b in zip(sums, exact.forward(batch, names), quantized.forward(batch, names), strict=True):
            kept.add(a, b)
    return [_error(node, kept) for node, kept in zip(nodes, sums, strict=True)]


@pinned()
def layerwise_error_analyse(graph: Graph, batches: Iterable[Any]) -> list[OperationError]:
    """Return, for each operation in order, the error at the graph's outputs if only this operation is quantized."""
    nodes, data = quantized_nodes(graph), listed(batches)
    exact = TorchExecutor(exact_form(graph))
    # the float outputs are the same for every operation
    references = [exact.forward(batch) for batch in data]
    found = []
    for node in tqdm(nodes, unit="operation", desc="layer-wise", disable=None, file=sys.stderr):
        alone, sums = TorchExecutor(_only(graph, node)), Sums()
        for batch, reference in zip(data, references, strict=True):
            for a, b in zip(reference, alone.forward(batch), strict=True):
                sums.add(a, b)
        found.append(_error(node, sums))
    return found


def error_table(errors: Sequence[OperationError]) -> str:
    """Return a table, the worst operation first."""
    ordered = sorted(errors, key=lambda error: error.sqnr)
    rows = [[e.name, e.op, f"{e.sqnr:.2f}", f"{e.cosine:.6f}", f"{e.mse:.3e}"] for e in ordered]
    return tabulate(rows, headers=["operation", "type", "SQNR dB", "cosine", "MSE"], disable_numparse=True)


def listed(batches: Iterable[Any]) -> list[Any]:
    """Return the batches; GraphError if there are none."""
    data = list(batches)
    if not data:
        raise GraphError("an analysis needs at least one batch.")
    return data


def quantized_nodes(graph: Graph) -> list[Node]:
    """Return the quantized operations in order; GraphError without one."""
    nodes = [node for node in graph.order if is_quantable(node)]
    if not nodes:
        raise GraphError(f"graph {graph.name!r}: no operation is quantized: use quantize_graph first.")
    return nodes


def exact_form(graph: Graph) -> Graph:
    """Return *graph* with no operation quantized."""
    return _only(graph, None)


def _only(graph: Graph, chosen: Node | None) -> Graph:
    """Return *graph* with only one quantized operation. Tensors that its producers would have quantized stay float."""
    return graph.with_(
        nodes=tuple(
            replace(node, parameters=None)
            if is_quantable(node) and (chosen is None or node.name != chosen.name)
            else node
            for node in graph.nodes
        )
    )


def sqnr_of(sums: Sums) -> float:
    """Return 10 * log10(signal power / noise power)."""
    return math.inf if sums.noise == 0 else 10 * math.log10(sums.signal / sums.noise) if sums.signal else -math.inf


def _error(node: Node, sums: Sums) -> OperationError:
    lengths = math.sqrt(sums.signal) * math.sqrt(sums.found)
    # of two zero vectors it is 1, of one zero vector 0
    cosine = sums.product / lengths if lengths else float(sums.signal == sums.found)
    return OperationError(node.name, node.op, sqnr_of(sums), cosine, sums.noise / sums.count if sums.count else 0.0)
