"""Calibration of the whole graph, as `global_calibration` says: constants that move between layers, and codes of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import Constant
from quantizer.optimize.adaround import adaround
from quantizer.optimize.equalization import equalized
from quantizer.optimize.global_methods import LAST, WITHOUT_EFFECT, Method
from quantizer.optimize.gptq import gptq
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.products import WEIGHTED, rows_of, second_moments, weights_of
from quantizer.optimize.quantizing import Decided
from quantizer.optimize.running import Runner
from quantizer.optimize.smooth_quant import smoothed

NORMALIZATIONS = ("layer_norm", "instance_norm", "group_norm", "rms_norm")
SCALINGS = ("batch_norm", "fully_connected")
SHAPING = ("reshape", "transpose", "squeeze")
Batches = Callable[[], Iterable[Mapping[str, Tensor]]]
"""The calibration set, from its start."""


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
                f"layer {node.name!r}: {method.name} would change it, which is not built here."
                f" Leave the layer out: {method.name}[...]<scope>, or take smooth_quant_zy."
            )
    return graph


def _changed(graph: Graph, method: Method) -> Iterator[Node]:
    """Yield what a method would change: normalizations; of awq_zy also scalings, if behind them come fully connected layers."""
    for node in graph.order:
        normal = node.op in NORMALIZATIONS
        if method.name == "mvn_correction" and normal:
            yield node
        if method.name == "awq_zy" and (normal or node.op in SCALINGS) and _feeds_products(graph, node):
            yield node


def _feeds_products(graph: Graph, node: Node) -> bool:
    """Return whether a fully connected layer reads a layer, with nothing but layers of shape between that keep the last axis."""
    last, waiting = graph.tensor(node.outputs[0]).shape[-1:], [node.outputs[0]]
    while waiting:
        for reader in graph.consumers.get(waiting.pop(), ()):
            if reader.op == "fully_connected":
                return True
            if reader.op in SHAPING and graph.tensor(reader.outputs[0]).shape[-1:] == last:
                waiting.append(reader.outputs[0])
    return False


def rounded(
    graph: Graph, methods: Iterable[Method], keys: Mapping[str, LayerKey], runner: Runner, batches: Batches,
    decided: Decided,
) -> dict[str, Tensor]:  # fmt: skip
    """Return layer -> weights on the grid of its parameters, for the method that chooses codes; in the operator's order."""
    found: dict[str, Tensor] = {}
    for method in methods:
        if method.name not in LAST:
            continue
        nodes = [node for node in graph.nodes if node.op in WEIGHTED and _concerned(method, keys)(node)]
        moments = second_moments(graph, runner, batches(), int(method.numbers["batches"]), {n.name for n in nodes})
        for node in nodes:
            weights = weights_of(graph, node)
            found[node.name] = _on_grid(
                method, node, weights, moments[node.name], decided.handed[node.name].constants["weight"]
            )
    return found


def _concerned(method: Method, keys: Mapping[str, LayerKey]) -> Callable[[Node], bool]:
    return lambda node: method.concerns(keys[node.name])


def _on_grid(method: Method, node: Node, weights: Tensor, moments: Tensor, constant: Constant) -> Tensor:
    """Return the weights that the method chooses, float32."""
    params, channels = constant.params, weights.shape[1] * len(moments)
    scale = params.along(params.scale, weights.dim()).expand(weights.shape[:1] + (1,) * (weights.dim() - 1))
    zero = params.along(params.zero_point, weights.dim()).expand(scale.shape)
    rows, scales, zeros = (rows_of(node, values, channels) for values in (weights.double(), scale, zero))
    chosen = []
    for own, step, offset, moment in zip(rows, scales, zeros, moments, strict=True):
        low, high = params.qmin - offset, params.qmax - offset
        if method.name == "gptq_zy":
            chosen.append(_by_gptq(method, own, step, moment, (low, high)))
        else:
            chosen.append(_by_adaround(method, own, step, moment, (low, high)))
    return torch.cat(chosen).reshape(weights.shape).float()


def _by_gptq(method: Method, rows: Tensor, scale: Tensor, moments: Tensor, limits: tuple[Tensor, Tensor]) -> Tensor:
    low, high = (limit[:, 0] for limit in limits)

    def nearest(values: Tensor) -> Tensor:
        return (values / scale[:, 0]).round().clamp(low, high) * scale[:, 0]

    numbers = method.numbers
    return gptq(
        rows, moments, nearest,
        act_order=bool(numbers["act_order"]), damping=numbers["damping"], block=max(1, int(numbers["block"])),
    )  # fmt: skip


def _by_adaround(method: Method, rows: Tensor, scale: Tensor, moments: Tensor, limits: tuple[Tensor, Tensor]) -> Tensor:
    numbers = method.numbers
    codes = adaround(
        (rows / scale).clamp(*limits), moments, scale,
        epochs=int(numbers["epochs"]), learning_rate=numbers["learning_rate"], regularization=numbers["regularization"],
        beta=(numbers["beta_first"], numbers["beta_last"]), warm_start=min(numbers["warm_start"], 0.99),
    )  # fmt: skip
    return codes.clamp(*limits) * scale
