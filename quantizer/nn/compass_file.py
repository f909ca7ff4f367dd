"""Converts a trained network to a quantized Compass file."""

from __future__ import annotations

from dataclasses import replace

from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_quantized import filed, provided_layer
from quantizer.ir.graph import Graph
from quantizer.numerics.qparams import Parameters

PLATFORM = "compass"


def compass_layers(graph: Graph) -> Graph:
    """Return a graph of `to_graph(..., platform="compass", order="channels_last")` as Compass layers.

    Writes every scale, zero point, code and multiplier under Compass's names: the input of
    `quantizer.ir.formats.compass.write`. UnsupportedError for a graph of another platform or order, and for a layer
    that Compass does not have.
    """
    specs = load_library().specs
    tensors = dict(graph.tensors)
    for name in graph.inputs:
        params = tensors[name].qparams
        assert params is not None
        kept = filed(params)
        tensors[name] = replace(tensors[name], dtype=kept.dtype, qparams=kept)
    nodes = []
    for node in graph.nodes:
        provided = node.parameters
        if (
            not isinstance(provided, Parameters)
            or provided.platform.platform != PLATFORM
            or node.order != "channels_last"
        ):
            raise UnsupportedError(
                f"node {node.name!r}: not for Compass. Make the graph by to_graph(..., platform='compass', "
                "order='channels_last')."
            )
        bits = next(iter(provided.outputs.values())).bits
        changed, made = provided_layer(graph, node, specs[node.op], multiplier_bits=bits)
        nodes.append(changed)
        tensors |= {tensor.name: tensor for tensor in made}
    return compass.foreign(graph.with_(nodes=tuple(nodes), tensors=tensors), specs)
