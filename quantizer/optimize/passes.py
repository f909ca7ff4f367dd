"""Passes of the flow in the order in which they run: before, at and after quantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_params import WINOGRAD
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.winograd import transformed
from quantizer.optimize.cfg import Options
from quantizer.optimize.fields import SINCE_X2, SINCE_X3
from quantizer.optimize.idle_layers import without_idle_layers
from quantizer.optimize.layer_parameters import Calibrated
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.scaled_products import axes_of_channels, products_of_channels
from quantizer.optimize.settings import FAST_EXP, FLOAT24, TWO_TABLES, Settings

WIDE = 16
"""Activations of this many bits or more are symmetric."""
TABLE, TABLE_BITS = 2, 20
"""Compass's number of the table method, and the bits of a table's entries."""
ADJUSTED = (0, 1, *range(8, 16))
"""Fractional bits of exponents for which there are kernels."""
ENTRY_BITS = range(2, 31)
"""The supported bits of a table's entries."""
FLOAT24_AXIS = 4096
"""The longest axis that the softmax unit of targets since X3 takes."""
SENSITIVE = ("NMS", "Sort", "ArgMinMax", "TopK", "InTopK")
"""Layers that rank their input."""
SHAPING = ("reshape", "transpose")
"""Operators that only move data."""
RESTRICTED = {
    "per_tensor_asymmetric": "per_tensor_symmetric_restricted_range",
    "per_channel_asymmetric": "per_channel_symmetric_restricted_range",
}
Before = Callable[
    [Graph, Mapping[str, Settings], Mapping[str, LayerKey], Options], tuple[Graph, Mapping[str, Settings]]
]
At = Callable[[Graph, Mapping[str, Settings], Mapping[str, Calibrated]], Mapping[str, Calibrated]]
After = Callable[[Graph, Mapping[str, Spec], Options, Mapping[str, LayerKey]], Graph]


def symmetric_where_wide(
    graph: Graph,
    settings: Mapping[str, Settings],
    keys: Mapping[str, LayerKey],  # noqa: ARG001
    options: Options,  # noqa: ARG001
) -> tuple[Graph, Mapping[str, Settings]]:
    """Make asymmetric activations of 16 bits symmetric and restricted."""
    name = "quantize_method_for_activation"
    changed = {
        layer: own.but(**{name: RESTRICTED.get(str(own[name]), own[name])})
        if own.number("activation_bits") >= WIDE
        else own
        for layer, own in settings.items()
    }
    return graph, changed


def softmax_method(
    graph: Graph, settings: Mapping[str, Settings], keys: Mapping[str, LayerKey], options: Options
) -> tuple[Graph, Mapping[str, Settings]]:
    """Choose how each softmax is computed: by table if its output is ranked or on targets since X3, else by fast_exp.

    These targets have a unit that computes a table along the last axis in 24-bit floats. UnsupportedError if
    Compass has no such kernel, or if the sum of the table's entries exceeds 32 bits.
    """
    changed = dict(settings)
    since_x3 = options["min_compatible_zhouyi_target"] in SINCE_X3
    for node in graph.nodes:
        if node.op != "softmax":
            continue
        tuned = settings[node.name]["enable_pass_tune_op_softmax"]
        assert isinstance(tuned, tuple)
        numbers = tuned[0]
        assert isinstance(numbers, tuple)
        method = int(numbers[0])
        if method == 0:
            method = TABLE if since_x3 or _ranked(graph, node.outputs[0], keys) else FAST_EXP
            # the second number is the bits of table entries, or the fractional bits of the exponent (adjust_q)
            numbers = (TABLE, TABLE_BITS) if method == TABLE else (FAST_EXP, 1)
            changed[node.name] = settings[node.name].but(enable_pass_tune_op_softmax=(numbers, tuned[1]))
        # a softmax in floating point has no kernel of codes that could be missing
        if settings[node.name]["trigger_float_op"] != "disable":
            continue
        if method == FAST_EXP and len(numbers) > 1 and int(numbers[1]) not in ADJUSTED:
            raise UnsupportedError(
                f"layer {node.name!r}: Softmax by fast_exp with adjust_q {numbers[1]:g}: Compass has no such kernel."
                f" Write a number of {list(ADJUSTED)}."
            )
        if method != FAST_EXP and len(numbers) > 1 and int(numbers[1]) not in ENTRY_BITS:
            raise UnsupportedError(
                f"layer {node.name!r}: a softmax table of {numbers[1]:g} bits is not supported: write a number from"
                f" {ENTRY_BITS[0]} to {ENTRY_BITS[-1]}."
            )
        if method != FAST_EXP and since_x3 and _on_float24_unit(graph, node):
            changed[node.name] = changed[node.name].but(**{FLOAT24: True})
    return graph, changed


def log_softmax_of_old_targets(
    graph: Graph,
    settings: Mapping[str, Settings],
    keys: Mapping[str, LayerKey],  # noqa: ARG001
    options: Options,
) -> tuple[Graph, Mapping[str, Settings]]:
    """Let a quantized LogSoftmax use two tables on targets before X2."""
    if options["min_compatible_zhouyi_target"] in SINCE_X2:
        return graph, settings
    old = {
        node.name: settings[node.name].but(**{TWO_TABLES: True})
        for node in graph.nodes
        if node.op == "log_softmax" and settings[node.name]["trigger_float_op"] == "disable"
    }
    return graph, {**settings, **old}


def _on_float24_unit(graph: Graph, node: Node) -> bool:
    """Return whether this softmax runs in 24-bit floats, on the softmax unit of targets since X3."""
    shape = graph.tensor(node.inputs[0] or "").shape
    rank = len(shape)
    height, width = {3: shape[:2], 4: shape[1:3]}.get(rank, (0, 0))
    last = int(cast("int", node.attrs["axis"])) % rank == rank - 1
    # the unit takes images with more than one place; other ranks have no height and width, which (0, 0) stands for
    return last and shape[-1] <= FLOAT24_AXIS and rank != 2 and (height, width) != (1, 1)


def reach_of_fast_exp(
    graph: Graph, settings: Mapping[str, Settings], ranges: Mapping[str, Calibrated]
) -> Mapping[str, Calibrated]:
    """Extend the output range of softmaxes by fast_exp to 1, regardless of calibration."""
    found = dict(ranges)
    for node in graph.nodes:
        if node.op == "softmax" and settings[node.name].fast_exp:
            found[node.outputs[0]] = replace(found[node.outputs[0]], high=1.0)
    return found


def factors_of_products(
    graph: Graph,
    settings: Mapping[str, Settings],
    keys: Mapping[str, LayerKey],  # noqa: ARG001
    options: Options,
) -> tuple[Graph, Mapping[str, Settings]]:
    """Look for one positive factor before or after a MatMul, which Compass folds into it.

    UnsupportedError if there is one: that MatMul is not implemented here.
    """
    if options["enable_pass_merge_matmul_mul"]:
        for node in graph.nodes:
            scaling = _scaling_beside(graph, node) if node.op == "matmul" else None
            if scaling is not None:
                raise UnsupportedError(
                    f"layer {node.name!r}: Compass folds the factor of layer {scaling.name!r} into this MatMul, which "
                    "is not implemented here. Write enable_pass_merge_matmul_mul = false to keep both layers."
                )
    return graph, settings


def winograd_where_it_fits(
    graph: Graph,
    settings: Mapping[str, Settings],
    keys: Mapping[str, LayerKey],  # noqa: ARG001
    options: Options,  # noqa: ARG001
) -> tuple[Graph, Mapping[str, Settings]]:
    """Use Winograd's algorithm for convolutions if the cfg requests it and it is faster.

    Their weights are transformed before statistics are gathered.
    """
    nodes, tensors = [], dict(graph.tensors)
    for node in graph.nodes:
        own = settings[node.name]
        if node.op != "conv2d" or not own["with_winograd"] or not _fits_winograd(graph, node):
            nodes.append(node)
            continue
        weights = graph.tensor(str(node.inputs[1]))
        assert weights.data is not None
        # the transform works on the last axes, and this file's weights have channels last
        data = transformed(weights.data.movedim(-1, 1)).movedim(1, -1)
        name = f"{node.name}:{weights.name}:transformed"
        tensors[name] = replace(weights, name=name, shape=tuple(data.shape), data=data)
        nodes.append(
            replace(node, inputs=(node.inputs[0], name, *node.inputs[2:]), extra={**node.extra, WINOGRAD: True})
        )
    return graph.with_(nodes=tuple(nodes), tensors=tensors), settings


def _fits_winograd(graph: Graph, node: Node) -> bool:
    """Return whether F(2, 3) takes fewer cycles than the plain convolution on both units that Compass counts for.

    3x3, dense, of one group, more than 4 input channels and 7 rows and columns. At a time, a unit takes 16 output
    channels, 32 input channels if there are 32, else 64, 8 columns, and its number of rows. Source: the Compass
    Optimizer's check.
    """
    (_, high, wide, c_in), (_, rows, columns, c_out) = (
        graph.tensor(str(name)).shape for name in (node.inputs[0], node.outputs[0])
    )
    kernel = graph.tensor(str(node.inputs[1])).shape[1:3]
    plain = node.attrs["groups"] == 1 and node.attrs["stride"] == node.attrs["dilation"] == (1, 1)
    if not plain or kernel != (3, 3) or c_in <= 4 or min(high, wide) <= 7:
        return False
    at_once, cycles = (32, (60, 36)) if c_in == 32 else (64, (110, 72))
    # a transformed kernel has 3 x 4 numbers instead of 3 x 3
    fetched = 3 * c_in * c_out / (32 * 0.8)
    blocks = math.ceil(c_in / at_once) * math.ceil(c_out / 16) * math.ceil(columns / 8)
    return all(
        # with F(2, 3) a unit takes twice as many rows, in less than twice the cycles
        cycles[0] * blocks * math.ceil(rows / (2 * own)) + fetched < cycles[1] * blocks * math.ceil(rows / own)
        for own in (1, 2)
    )


def degraded(graph: Graph, settings: Mapping[str, Settings]) -> Graph:
    """Return the graph with nearest instead of bilinear resizing of codes, if the cfg says so; floats stay bilinear."""
    nodes = []
    for node in graph.nodes:
        if node.op == "resize_bilinear" and settings[node.name]["resize_degrade_to_nearest"]:
            rounding = str(node.extra.get("nearest_mode", "round_prefer_floor")).lower()
            attrs = {**node.attrs, "rounding": rounding}
            nodes.append(replace(node, op="resize_nearest", attrs=attrs, extra={**node.extra, "method": "nearest"}))
        else:
            nodes.append(node)
    return graph.with_(nodes=tuple(nodes))


def _scaling_beside(graph: Graph, matmul: Node) -> Node | None:
    """Return the layer of one factor after a MatMul or before its operands, skipping layers that only change shapes."""
    after = graph.consumers.get(matmul.outputs[0], ())
    if len(after) != 1:
        return None
    while len(after) == 1 and after[0].op in SHAPING:
        after = graph.consumers.get(after[0].outputs[0], ())
    if len(after) == 1 and _one_factor(graph, after[0]):
        return after[0]
    found, waiting = [], [name for name in matmul.inputs if name is not None]
    while waiting:
        before = graph.producers.get(waiting.pop(0))
        if before is None or len(graph.consumers.get(before.outputs[0], ())) > 1:
            continue
        if before.op in SHAPING and before.inputs[0] is not None:
            waiting.append(before.inputs[0])
        elif before.op == "batch_norm":
            found.append(before)
        else:
            break
    return found[0] if found and all(_one_factor(graph, node) for node in found[:2]) else None


def _one_factor(graph: Graph, node: Node) -> bool:
    """Return whether a layer multiplies all elements by one positive number."""
    if node.op == "mul" and node.activation == "none":
        constants = [data for name in node.inputs if name and (data := graph.tensor(name).data) is not None]
        sizes = {graph.tensor(name).shape for name in node.inputs if name and graph.tensor(name).data is None}
        return len(constants) == 1 and _all_equal(constants[0]) and {graph.tensor(node.outputs[0]).shape} == sizes
    if node.op != "batch_norm" or node.inputs[1] is None:
        return False
    weight = graph.tensor(node.inputs[1]).data
    bias = graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 and node.inputs[2] else None
    return weight is not None and _all_equal(weight) and (bias is None or not bool(bias.any()))


def _all_equal(values: torch.Tensor) -> bool:
    return float(values.min()) == float(values.max()) > 0


def _ranked(graph: Graph, tensor: str, keys: Mapping[str, LayerKey]) -> bool:
    """Return whether *tensor* has no reader, or a ranking layer (ArgMax, TopK) reads it, directly or through others."""
    readers = graph.consumers.get(tensor, ())
    # an output of the graph: its reader outside may rank it
    if not readers:
        return True
    seen, waiting = set(), list(readers)
    while waiting:
        node = waiting.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        if keys[node.name].type in SENSITIVE:
            return True
        waiting += [reader for name in node.outputs for reader in graph.consumers.get(name, ())]
    return False


BEFORE: tuple[Before, ...] = (
    symmetric_where_wide,
    softmax_method,
    log_softmax_of_old_targets,
    factors_of_products,
    winograd_where_it_fits,
    products_of_channels,
)
AT: tuple[At, ...] = (reach_of_fast_exp,)
AFTER: tuple[After, ...] = (axes_of_channels, without_idle_layers)
