"""Calibration of the whole graph, as `global_calibration` says: constants that move between layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Graph, Node
from quantizer.optimize.equalization import equalized
from quantizer.optimize.global_methods import WITHOUT_EFFECT, Method
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.running import Runner
from quantizer.optimize.smooth_quant import smoothed

NORMALIZATIONS = ("layer_norm", "instance_norm", "group_norm", "rms_norm")
SCALINGS = ("batch_norm", "fully_connected")
SHAPING = ("reshape", "transpose", "squeeze")
OTHERS = {
    "awq_zy": "smooth_quant_zy",
    "svd_quant": "svd_quant[0] for all layers",
}
"""The remedy if a method is not implemented for a layer."""
REASONS = {
    "awq_zy": "the original searches before any layer has parameters, so that its factors follow from chance",
    "svd_quant": "last bits of libraries decide between the ranges that it searches",
}
"""Why a method is not built for a layer."""
Batches = Callable[[], Iterable[Mapping[str, Tensor]]]
"""Returns the batches of the calibration set, from the first one on."""


def moved(
    graph: Graph, methods: Iterable[Method], keys: Mapping[str, LayerKey], runner: Runner, batches: Batches
) -> Graph:
    """Return the float graph after the methods that move constants between layers; it computes the same."""
    for method in methods:
        concerns = _concerned(method, keys)
        if method.name == "equalization":
            graph = equalized(graph, concerns, int(method.numbers["rounds"]))
        elif method.name == "smooth_quant_zy":
            graph = smoothed(graph, runner, batches(), concerns, method.numbers["alpha"])
        elif method.name in WITHOUT_EFFECT and (node := next(filter(concerns, _changed(graph, method)), None)):
            raise UnsupportedError(
                f"layer {node.name!r}: {method.name} would change it, which is not supported: {REASONS[method.name]}."
                f" Leave the layer out: {method.name}[...]<scope>, or take {OTHERS[method.name]}."
            )
    return graph


def _changed(graph: Graph, method: Method) -> Iterator[Node]:
    """Yield the layers that a method would change: normalizations and scalings before fully connected layers.

    svd_quant searches ranges of every layer in all modes except 0; in mode 0 only if layer types are named.
    """
    searches = method.name == "svd_quant" and (method.numbers["mode"] >= 1 or bool(method.layers.types))
    for node in graph.order:
        if searches:
            yield node
        normal = node.op in NORMALIZATIONS
        if method.name == "awq_zy" and (normal or node.op in SCALINGS) and _feeds_products(graph, node):
            yield node


def _feeds_products(graph: Graph, node: Node) -> bool:
    """Return whether a fully connected layer reads a layer, directly or through layers that keep the last axis."""
    # factors per channel pass a layer only if it keeps the last axis, which the weights read
    last, waiting = graph.tensor(node.outputs[0]).shape[-1:], [node.outputs[0]]
    while waiting:
        for reader in graph.consumers.get(waiting.pop(), ()):
            if reader.op == "fully_connected":
                return True
            if reader.op in SHAPING and graph.tensor(reader.outputs[0]).shape[-1:] == last:
                waiting.append(reader.outputs[0])
    return False


def _concerned(method: Method, keys: Mapping[str, LayerKey]) -> Callable[[Node], bool]:
    return lambda node: method.concerns(keys[node.name])
