"""Fully connected layers under smooth_quant_zy and awq_zy: they get float32 scales and an input with a channel axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.formats.compass_params import AXES
from quantizer.ir.formats.compass_quantized import scaled_layer
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.optimize.cfg import Options
from quantizer.optimize.global_methods import methods_of
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.running import DEQUANTIZE, QUANTIZE
from quantizer.optimize.settings import Settings

SCALED = "compass.scaled"
"""Key of Node.extra: a mark of fully connected layers that are quantized with three scales instead of a multiplier."""
BY = ("smooth_quant_zy", "awq_zy")
"""Methods that give the input of every fully connected layer a channel axis, even if they change nothing."""


def products_of_channels(
    graph: Graph,
    settings: Mapping[str, Settings],
    keys: Mapping[str, LayerKey],  # noqa: ARG001
    options: Options,
) -> tuple[Graph, Mapping[str, Settings]]:
    """Mark fully connected layers if a method of the cfg gives their inputs a channel axis."""
    if not any(method.name in BY for method in methods_of(options["global_calibration"])):
        return graph, settings
    nodes = [
        replace(node, extra={**node.extra, SCALED: True}) if node.op == "fully_connected" else node
        for node in graph.nodes
    ]
    return graph.with_(nodes=tuple(nodes)), settings


def unmarked(graph: Graph) -> Graph:
    """Return the graph without marks."""
    nodes = [
        replace(node, extra={key: value for key, value in node.extra.items() if key != SCALED}) for node in graph.nodes
    ]
    return graph.with_(nodes=tuple(nodes))


def as_scaled(graph: Graph, node: Node, spec: Spec, *, perf_mode: bool) -> tuple[Node, list[Tensor]]:
    """Return a marked layer in the file's form. Each of its scales has as many axes as its tensor."""
    rank = len(graph.tensor(str(node.inputs[0])).shape)
    # a marked reader gives this layer's output a channel axis as well
    read = any(SCALED in reader.extra for reader in graph.consumers.get(node.outputs[0], ()))
    last = (1,) * (rank - 1) + (-1,)
    shapes = {"scale1": last, "scale2": (1, -1), "scale3": last if read else (-1,)}
    return scaled_layer(graph, node, spec, perf_mode=perf_mode, shapes=shapes)


def axes_of_channels(
    graph: Graph,
    specs: Mapping[str, Spec],  # noqa: ARG001
    options: Options,  # noqa: ARG001
    keys: Mapping[str, LayerKey],  # noqa: ARG001
) -> Graph:
    """Write the last axis as channel axis of every tensor that a marked layer reads, on both sides of a conversion."""
    axes: dict[str, int] = {}
    for node in graph.nodes:
        if SCALED in node.extra:
            name = str(node.inputs[0])
            axes[name] = len(graph.tensor(name).shape) - 1
            maker = graph.producers.get(name)
            if maker is not None and maker.op in (QUANTIZE, DEQUANTIZE):
                # both sides of a conversion have the axis (Compass)
                axes[str(maker.inputs[0])] = axes[name]
    if not axes:
        return graph
    sources = tuple(
        (place, _with_axes(node, axes), values)
        for place, node, values in cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ()))
    )
    nodes = tuple(_with_axes(node, axes) for node in graph.nodes)
    return graph.with_(nodes=nodes, extra={**graph.extra, SOURCES: sources})


def _with_axes(node: Node, axes: Mapping[str, int]) -> Node:
    if not any(name in axes for name in node.outputs):
        return node
    said = tuple(axes.get(name, "None") for name in node.outputs)
    return replace(
        node,
        attrs={key: said if key == AXES else value for key, value in node.attrs.items()},
        extra={key: said if key == AXES else value for key, value in node.extra.items()},
    )
