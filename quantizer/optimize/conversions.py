"""Quantize and DeQuantize layers between layers that are quantized and layers that stay in floating point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import UnsupportedError
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_params import AXES, TOP_SCALE, TOP_ZP, scale_of
from quantizer.ir.formats.compass_quantized import filed
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.optimize.code_graph import quantized_graph
from quantizer.optimize.generations import by_generation
from quantizer.optimize.layer_parameters import Decided, Layers, source_layers
from quantizer.optimize.running import DEQUANTIZE, QUANTIZE
from quantizer.optimize.settings import Settings
from quantizer.plugins.layers_without_spec import activations

MAKER = "compass.maker"
"""Key of a conversion's Node.extra: the producer of its input, whose settings are shown for the conversion."""


def float_layers(graph: Graph, settings: Mapping[str, Settings]) -> dict[str, DType]:
    """Return the layers that stay in floating point, with their type, as trigger_float_op says."""
    found = {}
    layers = {node.name for node in graph.nodes} | {node.name for node in source_layers(graph).values()}
    for name in sorted(layers):
        trigger = str(settings[name]["trigger_float_op"]).rstrip("!")
        if trigger == "disable":
            continue
        kind, _, what = trigger.partition("_")
        if what != "preferred":
            raise UnsupportedError(
                f"layer {name!r}: trigger_float_op={trigger}: integer weights in a float layer are not supported, "
                f"because no recorded run shows how the IR expresses them. Write {kind}_preferred!."
            )
        found[name] = DTYPES[kind]
    return found


def with_floats(graph: Graph, layers: Layers, decided: Decided, floats: Mapping[str, DType]) -> Graph:
    """Return the graph of codes with the layers in *floats* in floating point, and conversions around them."""
    return with_conversions(quantized_graph(graph, layers, decided, floats), layers.specs, decided, floats)


def with_conversions(graph: Graph, specs: Mapping[str, Spec], decided: Decided, floats: Mapping[str, DType]) -> Graph:
    """Return a graph of codes with a conversion on every edge between both kinds, shared if all readers need it.

    A Quantize takes the parameters that its producer's rule would have chosen; a DeQuantize gives the type of its
    (first) reader. Layers are inserted one after the other, as in the original: each at the end of its generation.
    """
    tensors = dict(graph.tensors)
    nodes = {node.name: node for node in by_generation(graph.nodes)}
    for kind in (QUANTIZE, DEQUANTIZE):
        shared: dict[str, str] = {}
        edges = _between_kinds(graph, specs, floats, kind, list(nodes))
        for count, (reader, place, name, maker) in enumerate(edges):
            if name not in shared:
                # only indices have no scale
                if decided.tensors[name].steps is None:
                    text = f"layer {reader!r}: {name!r} holds indices: a float layer cannot read them here."
                    raise UnsupportedError(text)
                made, tensor = _conversion(kind, maker, tensors[name], decided, floats.get(reader), count)
                tensors[tensor.name] = tensor
                nodes[made.name] = made
                # the original shares a conversion only if each reader lies on the other side; else each gets its own
                all_need = all((maker in floats) != (other.name in floats) for other in graph.consumers[name])
                read = shared.setdefault(name, tensor.name) if all_need else tensor.name
            else:
                read = shared[name]
            inputs = nodes[reader].inputs
            nodes[reader] = replace(nodes[reader], inputs=(*inputs[:place], read, *inputs[place + 1 :]))
            nodes = {node.name: node for node in by_generation(nodes.values())}
    return graph.with_(nodes=tuple(nodes.values()), tensors=tensors)


def _between_kinds(
    graph: Graph, specs: Mapping[str, Spec], floats: Mapping[str, DType], kind: str, order: list[str]
) -> list[tuple[str, int, str, str]]:
    """Return the edges that need a conversion, in readers' *order*: reader, place in its inputs, tensor, maker."""
    sources = source_layers(graph)
    found = []
    known = {node.name: node for node in graph.nodes}
    for node in (known[name] for name in order if name in known):
        for place, name in _read(node, specs):
            maker = (sources[name] if name in sources else graph.producers[name]).name
            # a Quantize stands after a float layer and before a quantized one, a DeQuantize the other way round
            if (maker in floats) != (node.name in floats) and (maker in floats) == (kind == QUANTIZE):
                found.append((node.name, place, name, maker))
    return found


def _read(node: Node, specs: Mapping[str, Spec]) -> list[tuple[int, str]]:
    """Return the activations that a layer reads, with their places among its inputs."""
    if node.op not in specs:
        return list(enumerate(activations(node)))
    spec = specs[node.op]
    named = enumerate(zip(spec.inputs, node.inputs, strict=True))
    return [(place, name) for place, (key, name) in named if name is not None and key in spec.activations]


def _conversion(
    kind: str, maker: str, tensor: Tensor, decided: Decided, dtype: DType | None, number: int
) -> tuple[Node, Tensor]:
    params = filed(decided.tensors[tensor.name])
    # the file's zero point has the other sign
    steps, zero = float(scale_of(params)), -int(params.zero_point)
    name = f"{tensor.name}_{kind}_tensor_{number}"
    attrs: dict[str, object] = {"unquantifiable": True}
    extra: dict[str, object] = {CONSTANTS: (), MAKER: maker}
    if kind == QUANTIZE:
        attrs["round_mode"] = "ROUND_TO_EVEN"
        made = Tensor(name, tensor.shape, params.dtype, qparams=params)
    else:
        assert dtype is not None
        made = Tensor(name, tensor.shape, dtype)
        extra |= {TOP_SCALE: (1.0,), TOP_ZP: (0,)}
    attrs |= {"quantize_scale": steps, "quantize_zp": zero, AXES: ("None",)}
    inputs, outputs = (tensor.name,), (name,)
    label = f"{maker}_{kind}_{number}"
    node = Node(label, kind, inputs, outputs, attrs, "channels_last", extra)  # type: ignore[arg-type]
    return node, made
