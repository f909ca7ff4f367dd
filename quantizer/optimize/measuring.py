"""Measures graphs: scores of metrics, and the similarity of each quantized layer to its float layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantizer.ir.graph import Graph
from quantizer.numerics import mkl
from quantizer.optimize.loader import Batches
from quantizer.optimize.registered import called
from quantizer.optimize.running import DEQUANTIZE, QUANTIZE, Runner, real
from quantizer.plugins.aipu.registration import OptBaseMetric


@dataclass(frozen=True)
class Score:
    """The score of one graph by one metric."""

    graph: str
    metric: str
    value: Any
    report: str


@dataclass(frozen=True)
class Similarity:
    """Cosine and mean squared error of one tensor against the float graph's."""

    cosine: float
    mse: float


def measure(
    name: str, runner: Runner, graph: Graph, loader: Batches, metrics: Sequence[OptBaseMetric]
) -> Iterator[Score]:
    """Yield the score of each metric over a data set; metrics see dequantized outputs in the order of the IR."""
    for feeds, labels in loader.batches():
        outputs = [
            dequantized(graph, tensor, values)
            for tensor, values in zip(graph.outputs, runner.outputs(graph, feeds), strict=True)
        ]
        for metric in metrics:
            # copies: a plugin's metric may write into what it gets, and the next one must not see that
            called(metric, "__call__", [values.clone() for values in outputs], labels)
    for metric in metrics:
        value = called(metric, "compute")
        yield Score(name, type(metric).__name__, value, str(called(metric, "report")))


def compare_layers(
    runner: Runner, graph: Graph, quantized: Graph, batches: Iterable[Mapping[str, Tensor]], count: int
) -> dict[str, Similarity]:
    """Return tensor -> similarity of both graphs' values, over the first *count* batches."""
    sums: dict[str, list[Similarity]] = {}
    for _, feeds in zip(range(count), batches, strict=False):
        wanted = {name: values for name, _, values in runner.forward(graph, feeds)}
        for name, node, values in runner.forward(quantized, feeds):
            source = str(node.inputs[0]) if node is not None and node.op in (QUANTIZE, DEQUANTIZE) else name
            if source in wanted:
                got = dequantized(quantized, name, values)
                sums.setdefault(name, []).append(_similarity(wanted[source], got))
    return {
        name: Similarity(sum(s.cosine for s in found) / len(found), sum(s.mse for s in found) / len(found))
        for name, found in sums.items()
    }


def dequantized(graph: Graph, name: str, values: Tensor) -> Tensor:
    """Return the real values of a tensor of a graph of codes."""
    params = graph.tensor(name).qparams
    return values.float() if params is None or values.is_floating_point() else real(values, params)


def _similarity(wanted: Tensor, got: Tensor) -> Similarity:
    a, b = wanted.double().flatten(), got.double().flatten()
    norms = float(a.norm() * b.norm())
    product = a @ b if mkl.is_pinned() else (a * b).sum()
    cosine = float(product) / norms if norms else float(bool(torch.equal(a, b)))
    return Similarity(cosine, float(((a.float() - b.float()) ** 2).mean()))
