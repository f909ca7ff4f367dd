"""Statistics of every activation over the calibration set, batch by batch, and the ranges that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from quantizer.calibration.statistics import Statistics, observe
from quantizer.calibration.strategies import calibrated
from quantizer.core.errors import GraphError
from quantizer.ir.formats.compass_params import TOP_RANGE
from quantizer.ir.graph import Graph, Node
from quantizer.optimize.layer_parameters import Calibrated, source_layers, stage_of
from quantizer.optimize.logarithm_stages import staged as staged_logarithms
from quantizer.optimize.running import Runner
from quantizer.optimize.settings import TWO_TABLES, Settings


@dataclass(frozen=True)
class Gathered:
    """Statistics of tensors by name."""

    tensors: Mapping[str, Statistics] = field(default_factory=dict)
    missing_ranges: tuple[str, ...] = ()
    """Layers with the strategy in_ir for which the IR has no range."""


def gather(
    graph: Graph,
    runner: Runner,
    settings: Mapping[str, Settings],
    batches: Iterable[Mapping[str, Tensor]],
    *,
    everything: bool = False,
) -> Gathered:
    """Return the statistics of every activation of a float graph, one batch in memory at a time.

    everything: whether to keep moments and histograms that no strategy asks for, too.
    """
    sources = source_layers(graph)
    found: dict[str, Statistics] = {}
    staged: dict[str, list[Node]] = {}
    for layer in graph.nodes:
        if settings[layer.name].values.get(TWO_TABLES):
            staged.setdefault(str(layer.inputs[0]), []).append(layer)

    def take(name: str, layer: Node, values: Tensor) -> None:
        own = settings[layer.name]
        try:
            found[name] = observe(found.get(name), values, own.wanted(own.strategy, everything=everything))
        except GraphError as err:
            raise GraphError(f"layer {layer.name!r}: {err}") from None

    for feeds in batches:
        read: dict[str, Tensor] = {}
        for name, node, values in runner.forward(graph, feeds):
            take(name, sources[name] if node is None else node, values)
            if name in staged:
                # kept for the LogSoftmax that reads it; other tensors are freed after their last reader
                read[name] = values
            if node is not None and node in staged.get(str(node.inputs[0]), ()):
                for stage, own in staged_logarithms(read[str(node.inputs[0])], _axis(node)).items():
                    take(stage_of(name, stage), node, own)
    # constants do not change from batch to batch, so each is observed once
    for name, layer in sources.items():
        if name not in graph.inputs:
            data = graph.tensor(name).data
            assert data is not None
            take(name, layer, data)
    return _with_ranges_of_the_ir(graph, settings, sources, found)


def _with_ranges_of_the_ir(
    graph: Graph, settings: Mapping[str, Settings], sources: Mapping[str, Node], found: dict[str, Statistics]
) -> Gathered:
    """Return *found* with the IR's ranges for layers of strategy in_ir, and the layers without a range in the IR."""
    missing = []
    for name, statistics in list(found.items()):
        layer = _layer(graph, sources, name)
        if settings[layer.name].strategy.name != "in_ir" or name not in layer.outputs:
            continue
        ranges = layer.extra.get(TOP_RANGE)
        if not isinstance(ranges, tuple):
            missing.append(layer.name)
            continue
        low, high = (torch.tensor(float(end)) for end in ranges[layer.outputs.index(name)])
        found[name] = statistics.with_ends(low, high)
    return Gathered(found, tuple(missing))


def ranges_of(graph: Graph, settings: Mapping[str, Settings], gathered: Gathered) -> dict[str, Calibrated]:
    """Return the range of every activation, as its layer's strategy finds it."""
    sources = source_layers(graph)
    found = {}
    for name, statistics in gathered.tensors.items():
        own = settings[_layer(graph, sources, name).name]
        low, high = calibrated(own.strategy, statistics, bits=own.number("activation_bits"), symmetric=own.symmetric)
        # the smallest value as it was observed decides the sign, whatever the strategy clips
        found[name] = Calibrated(float(low), float(high), float(statistics.low))
    return found


def _layer(graph: Graph, sources: Mapping[str, Node], name: str) -> Node:
    """Return the layer that makes a tensor, or computes it on the way to its output."""
    if name in sources:
        return sources[name]
    if name in graph.producers:
        return graph.producers[name]
    # an intermediate result, as stage_of names it
    return graph.producers[name.rpartition(":")[0]]


def _axis(node: Node) -> int:
    return int(cast("int", node.attrs["axis"]))
