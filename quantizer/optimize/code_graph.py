"""Builds the graph of codes that is written, from the parameters of every layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from quantizer.core.dtypes import DType
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.formats.compass_params import AXES, TOP_RANGE, TOP_SCALE, TOP_ZP, WINOGRAD, scale_of
from quantizer.ir.formats.compass_quantized import filed, float_layer, provided_layer
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, container
from quantizer.numerics.quantize import quantize
from quantizer.optimize import layers_without_spec
from quantizer.optimize.layer_parameters import Decided, Layers
from quantizer.optimize.scaled_products import SCALED, as_scaled
from quantizer.plugins.layers_without_spec import LoneLayer

FLOAT_BIASES = ("biases", "negative_slope")
"""Constants that stay float32 in a layer of 16-bit floats."""
BY_WINOGRAD: Mapping[str, AttrValue] = {
    "with_winograd": True,
    "Fmnrs": (2, 3),
    "kernel_x": 4,
    "kernel_y": 3,
    "stride_x": 2,
    "stride_y": 1,
}
"""The lines of a layer that uses Winograd's algorithm, which computes two outputs from four elements of a row."""


def quantized_graph(graph: Graph, layers: Layers, decided: Decided, floats: Mapping[str, DType]) -> Graph:
    """Return the graph of codes, with constants as codes and Compass's names. Layers in *floats* stay float."""
    graph = _without_ranges(graph)
    tensors = dict(graph.tensors)
    nodes = []
    for node in graph.nodes:
        settings = layers.settings[node.name]
        perf = bool(settings["perf_mode_for_lib"])
        if isinstance(node.parameters, LoneLayer):
            changed, made = (
                layers_without_spec.float_layer(graph, node, floats[node.name], perf_mode=perf)
                if node.name in floats
                else layers_without_spec.quantized_layer(graph, node, decided.lone[node.name], perf_mode=perf)
            )
            nodes.append(changed)
            tensors |= {tensor.name: tensor for tensor in made}
            continue
        spec = layers.specs[node.op]
        if node.name in floats:
            changed, made = float_layer(graph, node, floats[node.name], perf_mode=perf)
            made += _float_constants(graph, spec, node, floats[node.name])
            changed = replace(changed, extra=_before_axes(changed.extra, _unit_scales(spec, node)))
        else:
            ready = replace(node, parameters=decided.provided[node.name])
            if SCALED in node.extra:
                changed, made = as_scaled(graph, ready, spec, perf_mode=perf)
                nodes.append(changed)
                tensors |= {tensor.name: tensor for tensor in made}
                continue
            bits = settings.multiplier_bits_of(spec.quantization.family)
            more = BY_WINOGRAD if node.extra.get(WINOGRAD) is True else None
            changed, made = provided_layer(graph, ready, spec, multiplier_bits=bits, perf_mode=perf, more=more)
        nodes.append(changed)
        tensors |= {tensor.name: tensor for tensor in made}
    found = graph.with_(nodes=tuple(nodes), tensors=tensors)
    return _with_sources(found, layers, decided, floats)


def _without_ranges(graph: Graph) -> Graph:
    """Return the graph without the float IR's ranges of real outputs.

    In a graph of codes they would be read as the ends of the codes.
    """

    def plain(node: Node) -> Node:
        extra = {key: value for key, value in node.extra.items() if key != TOP_RANGE}
        return node if len(extra) == len(node.extra) else replace(node, extra=extra)

    sources = cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ()))
    kept = tuple((position, plain(node), constant) for position, node, constant in sources)
    return graph.with_(nodes=tuple(plain(node) for node in graph.nodes), extra={**graph.extra, SOURCES: kept})


def _float_constants(graph: Graph, spec: Spec, node: Node, dtype: DType) -> list[Tensor]:
    """Return the constants of a layer that stays in 16-bit floating point, in that type except for biases."""
    assert FORMAT in spec.formats
    keys = spec.formats[FORMAT].inputs
    found = []
    for key, name in zip(spec.inputs, node.inputs, strict=True):
        if name is not None and key in keys and keys[key] not in FLOAT_BIASES and dtype.bits < 32:
            tensor = graph.tensor(name)
            assert tensor.data is not None
            found.append(replace(tensor, dtype=dtype, data=tensor.data.to(container(dtype))))
    return found


def _before_axes(extra: Mapping[str, object], added: Mapping[str, object]) -> dict[str, object]:
    """Return the lines that a layer keeps, with *added* before the last line, which holds its axes."""
    return {**{key: value for key, value in extra.items() if key != AXES}, **added, AXES: extra[AXES]}


def _unit_scales(spec: Spec, node: Node) -> dict[str, object]:
    """Return the scale 1 and the zero point 0 that Compass writes for weights and biases of a float layer."""
    assert FORMAT in spec.formats
    keys = spec.formats[FORMAT].inputs
    found: dict[str, object] = {}
    for key, name in zip(spec.inputs, node.inputs, strict=True):
        if name is not None and keys.get(key) in ("weights", "biases"):
            found |= {f"{keys[key]}_scale": 1.0, f"{keys[key]}_zp": 0}
    return found


def _with_sources(graph: Graph, layers: Layers, decided: Decided, floats: Mapping[str, DType]) -> Graph:
    """Return the graph with its Input and Constant layers quantized."""
    sources = []
    tensors = dict(graph.tensors)
    for position, node, constant in cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ())):
        source, values = _source(node, constant, layers, decided, tensors, floats.get(node.name))
        sources.append((position, source, values))
    return graph.with_(tensors=tensors, extra={**graph.extra, SOURCES: tuple(sources)})


def _source(
    node: Node,
    constant: Tensor | None,
    layers: Layers,
    decided: Decided,
    tensors: dict[str, Tensor],
    dtype: DType | None,
) -> tuple[Node, Tensor | None]:
    """Return an Input or Constant layer in its written form, and its constant; its tensor in *tensors* is replaced.

    dtype: the type, if the layer stays in floating point.
    """
    said: dict[str, AttrValue] = {
        "is_perf_mode": bool(layers.settings[node.name]["perf_mode_for_lib"]),
        "unquantifiable": dtype is not None,
        AXES: ("None",) * len(node.outputs),
    }
    extra = {CONSTANTS: (), **node.extra}
    for name in node.outputs:
        if dtype is not None:
            extra |= {TOP_SCALE: (1.0,), TOP_ZP: (0,)}
            tensors[name] = replace(tensors[name], dtype=dtype)
        # a tensor that no layer reads has no parameters, and stays as it is
        elif name in decided.tensors:
            params = filed(decided.tensors[name])
            tensors[name] = replace(tensors[name], dtype=params.dtype, qparams=params)
            if constant is not None and constant.data is not None:
                codes = quantize(constant.data.float(), params, layers.platform.quantizer)
                data = codes.to(container(params.dtype))
                tensors[name] = replace(tensors[name], data=data)
                # the file's zero point has the other sign: real = (code + zp) / scale
                said |= {"weights_scale": float(scale_of(params)), "weights_zp": -int(params.zero_point)}
                constant = replace(constant, dtype=params.dtype, data=data)
    return replace(node, attrs={**node.attrs, **said}, extra=extra), constant
