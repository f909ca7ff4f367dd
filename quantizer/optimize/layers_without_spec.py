"""Finds, quantizes and inserts layers without a spec in the Compass flow: those of plugins, and moving ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_params import AXES, TOP_SCALE, TOP_ZP
from quantizer.ir.formats.compass_quantized import filed
from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import QParams
from quantizer.optimize.moving_layers import moving_layer
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.running import batch_in_ir
from quantizer.optimize.settings import KEYS, Settings
from quantizer.optimize.sign_layer import sign_layer
from quantizer.optimize.table_layers import one_input_layer
from quantizer.plugins.layers_without_spec import LoneLayer, activations, plugin_layer


def with_lone_layers(
    graph: Graph, specs: Mapping[str, Spec], keys: Mapping[str, LayerKey], platform: Platform
) -> Graph:
    """Return the graph with layers without a spec (of a plugin, or built in) as `parameters` of their nodes."""
    batch = batch_in_ir(graph)
    nodes = [
        node
        if node.op in specs
        else replace(
            node,
            # a plugin's layer wins over a built-in layer of the same type
            parameters=plugin_layer(graph, node, keys[node.name].number, batch)
            or moving_layer(graph, node)
            or sign_layer(graph, node)
            or one_input_layer(graph, node, platform),
        )
        for node in graph.nodes
    ]
    return graph.with_(nodes=tuple(nodes))


def with_own_layers(graph: Graph, specs: Mapping[str, Spec], platform: Platform) -> Graph:
    """Return a graph that was just read, with layers that need neither spec nor plugin ready to run."""
    nodes = []
    for node in graph.nodes:
        one = None if node.op in specs else one_input_layer(graph, node, platform)
        if one is not None:
            x, y = (graph.tensor(name).qparams for name in (activations(node)[0], node.outputs[0]))
            nodes.append(replace(node, parameters=one if x is None or y is None else one.read(x, y)))
            continue
        sign = None if node.op in specs else sign_layer(graph, node)
        if sign is not None:
            nodes.append(replace(node, parameters=replace(sign, x=graph.tensor(activations(node)[0]).qparams)))
            continue
        layer = None if node.op in specs else moving_layer(graph, node)
        params = [graph.tensor(name).qparams for name in activations(node)] if layer is not None else []
        known = [item for item in params if item is not None]
        # a layer with real values and codes at once cannot run: it stays without parameters, and is reported later
        if layer is None or 0 < len(known) < len(params):
            nodes.append(node)
        else:
            nodes.append(replace(node, parameters=replace(layer, inputs=tuple(known))))
    return graph.with_(nodes=tuple(nodes))


def decided(
    layer: LoneLayer,
    node: Node,
    settings: Settings,
    samples: Mapping[str, Tensor],
    tensors: Mapping[str, QParams],
    ranges: Sequence[tuple[float, float]],
) -> LoneLayer:
    """Return the quantized layer under its settings."""
    read = activations(node)
    attrs: dict[str, Any] = {key: settings[name] for key, name in KEYS.items() if name in settings.values}
    # the cfg has no field for the biases' method; plugins read a value that is never empty
    attrs |= {"q_mode_bias": attrs["q_mode_weight"], "multiplier_bits": settings.multiplier_bits}
    return layer.decided([samples[name] for name in read], [tensors[name] for name in read], ranges, attrs)


def quantized_layer(graph: Graph, node: Node, layer: LoneLayer, *, perf_mode: bool) -> tuple[Node, list[GraphTensor]]:
    """Return the Compass node, with the attributes that its quantize function wrote, and its new tensors."""
    read = activations(node)
    made = [
        replace(graph.tensor(name), dtype=params.dtype, qparams=params)
        for name, params in zip(node.outputs, map(filed, layer.outputs), strict=True)
    ]
    constants = {key: replace(held, name=f"{node.name}:{key}") for key, held in layer.constants().items()}
    attrs = layer.params() | {
        "is_perf_mode": perf_mode,
        "unquantifiable": False,
        AXES: ("None",) * len(node.outputs),
    }
    inputs = (*read, *(tensor.name for tensor in constants.values()))
    extra = {**node.extra, CONSTANTS: tuple(constants)}
    return replace(node, inputs=inputs, attrs=attrs, extra=extra, parameters=layer), [*made, *constants.values()]


def float_layer(graph: Graph, node: Node, dtype: DType, *, perf_mode: bool) -> tuple[Node, list[GraphTensor]]:
    """Return the layer as it is written if it stays in floating point."""
    tensors = [replace(graph.tensor(name), dtype=dtype, qparams=None) for name in node.outputs]
    count = len(tensors)
    attrs = {**node.attrs, "is_perf_mode": perf_mode, "unquantifiable": True, AXES: ("None",) * count}
    extra = {**node.extra, TOP_SCALE: (1.0,) * count, TOP_ZP: (0,) * count}
    return replace(node, attrs=attrs, extra=extra), tensors
