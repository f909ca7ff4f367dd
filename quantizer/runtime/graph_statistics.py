"""Statistics of a quantized graph: every tensor's values, float and quantized, and the ranges of constants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.ir.graph import Graph
from quantizer.runtime.analysis import Sums, exact_form, listed, quantized_nodes, sqnr_of
from quantizer.runtime.hooks import is_quantable
from quantizer.runtime.torch_executor import TorchExecutor


@dataclass
class Moments:
    """Sums of powers of the observed values, in float64."""

    count: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Tensor) -> None:
        """Count one tensor."""
        wide = values.double().reshape(-1)
        if not wide.numel():
            return
        self.count += wide.numel()
        self.sums = [total + float((wide**power).sum()) for power, total in enumerate(self.sums, start=1)]
        self.low, self.high = min(self.low, float(wide.min())), max(self.high, float(wide.max()))

    def summary(self) -> Summary:
        """Return mean, standard deviation (of a population, not a sample), skewness, excess kurtosis and ends."""
        if not self.count:
            raise GraphError("statistics of an empty tensor: there are none.")
        m1, m2, m3, m4 = (total / self.count for total in self.sums)
        # the difference of two rounded sums may fall below 0
        variance = max(m2 - m1 * m1, 0.0)
        deviation = math.sqrt(variance)
        # central moments from raw ones
        third = m3 - 3 * m1 * m2 + 2 * m1**3
        fourth = m4 - 4 * m1 * m3 + 6 * m1 * m1 * m2 - 3 * m1**4
        there = variance > 0
        return Summary(
            m1,
            deviation,
            third / (variance * deviation) if there else 0.0,
            fourth / (variance * variance) - 3 if there else 0.0,
            self.low,
            self.high,
        )


@dataclass(frozen=True)
class Summary:
    """Statistics of one tensor; without spread, skewness and kurtosis are 0."""

    mean: float
    deviation: float
    skewness: float
    kurtosis: float
    low: float
    high: float


@dataclass(frozen=True)
class TensorStatistics:
    """Statistics of one tensor of a quantized operation."""

    operation: str
    op: str
    tensor: str
    is_input: bool
    sqnr: float
    float_values: Summary
    quantized_values: Summary
    noise: Summary


@dataclass(frozen=True)
class ParameterRange:
    """The range of a quantized operation's constant, and its smallest and largest scale."""

    operation: str
    op: str
    tensor: str
    shape: tuple[int, ...]
    low: float
    high: float
    deviation: float
    mean_size: float
    smallest_scale: float | None
    largest_scale: float | None


def statistical_analyse(graph: Graph, batches: Iterable[Any]) -> list[TensorStatistics]:
    """Return statistics of each computed operand and result of quantized operations, with the whole graph quantized."""
    places = [
        (node, name, is_input)
        for node in quantized_nodes(graph)
        for is_input, names in ((True, node.inputs), (False, node.outputs))
        for name in names
        if name is not None and not graph.tensor(name).is_constant and graph.tensor(name).dtype.kind == "float"
    ]
    names = list(dict.fromkeys(name for _, name, _ in places))
    exact, quantized = TorchExecutor(exact_form(graph)), TorchExecutor(graph)
    kept = {name: (Moments(), Moments(), Moments(), Sums()) for name in names}
    for batch in listed(batches):
        for name, a, b in zip(names, exact.forward(batch, names), quantized.forward(batch, names), strict=True):
            float_values, quantized_values, noise, sums = kept[name]
            float_values.add(a)
            quantized_values.add(b)
            noise.add(b - a)
            sums.add(a, b)
    return [
        TensorStatistics(
            node.name, node.op, name, is_input, sqnr_of(kept[name][3]), *(m.summary() for m in kept[name][:3])
        )
        for node, name, is_input in places
    ]


def parameter_analyse(graph: Graph) -> list[ParameterRange]:
    """Return the range of every float constant of the graph's operations, and its scales where it is quantized."""
    found = []
    for node in graph.order:
        own: Any = node.parameters
        configs = own.input_quantization_config if is_quantable(node) else [None] * len(node.inputs)
        for name, config in zip(node.inputs, configs, strict=True):
            data = None if name is None else graph.tensor(name).data
            if name is None or data is None or not data.is_floating_point() or not data.numel():
                continue
            scale = config.params.scale if config is not None and config.is_active else None
            wide = data.double()
            found.append(
                ParameterRange(
                    node.name,
                    node.op,
                    name,
                    tuple(data.shape),
                    float(wide.min()),
                    float(wide.max()),
                    float(torch.std(wide, correction=0)),
                    float(wide.abs().mean()),
                    None if scale is None else float(scale.min()),
                    None if scale is None else float(scale.max()),
                )
            )
    return found


def _moments(row: TensorStatistics) -> tuple[float, ...]:
    values, noise = row.float_values, row.noise
    ends = (values.low, values.high, values.mean, values.deviation)
    return (*ends, noise.mean, noise.deviation, noise.low, noise.high)


def statistics_table(rows: Sequence[TensorStatistics]) -> str:
    """Return a table of tensors in the graph's order."""
    cells = [[s.operation, s.tensor, f"{s.sqnr:.2f}", *(f"{value:.4g}" for value in _moments(s))] for s in rows]
    headers = [
        "operation",
        "tensor",
        "SQNR dB",
        "min",
        "max",
        "mean",
        "deviation",
        "noise mean",
        "noise deviation",
        "noise min",
        "noise max",
    ]
    return tabulate(cells, headers=headers, disable_numparse=True)


def parameters_table(rows: Sequence[ParameterRange]) -> str:
    """Return a table of constants in the graph's order."""
    cells = [
        [
            p.operation,
            p.tensor,
            "x".join(map(str, p.shape)),
            *(f"{v:.4g}" for v in (p.low, p.high, p.deviation, p.mean_size)),
            *("" if v is None else f"{v:.4g}" for v in (p.smallest_scale, p.largest_scale)),
        ]
        for p in rows
    ]
    headers = [
        "operation",
        "constant",
        "shape",
        "min",
        "max",
        "deviation",
        "mean size",
        "smallest scale",
        "largest scale",
    ]
    return tabulate(cells, headers=headers, disable_numparse=True)
