"""TOSA: lowers a case to TOSA operators as TensorFlow Lite's converter legalises quantized operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tosa_serializer as ts
from torch import Tensor

from quantizer.core.errors import RefusedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import quantize
from quantizer.numerics.windows import pool_padding
from quantizer.platforms.tosa import joined
from quantizer.platforms.tosa.elements import (
    CHOICES,
    SUMS,
    Built,
    Codes,
    element_wise,
    elementwise_product,
    looked_up,
    operand,
    product,
    rectified,
    reduced,
    summed,
    to_output,
)
from quantizer.platforms.tosa.graph import INT8, INT32, PROPAGATE, TosaGraph, Value, kind_of
from quantizer.platforms.tosa.products import (
    FIRST,
    LAST,
    convolve,
    fully_connect,
    multiply_matrices,
    used,
)
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.lowering import Lowered, Wires
from quantizer.runtime.engines.protocol import Call

CHECKS = ("arithmetic", "accuracy", "exact", "tiled", "properties", "repeat", "engine")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv_transpose2d")
REDUCTIONS = ("reduce_sum", "reduce_mean", "global_avg_pool2d")


def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return None if the operator is a TOSA operator with RESCALE, CLAMP, PAD and SLICE around it."""
    return None if spec.op in (*CONVOLUTIONS, *_LOWERED) else f"no one TOSA operator is {spec.op}"


def lower(call: Call, codes: Codes, parameters: Parameters, variant: str) -> Lowered:
    """Return the graph of the operator; activations are fed, channels last where they are images."""
    op = call.spec.op
    if op in CONVOLUTIONS:
        graph, made, axes = convolve(call, codes, parameters)
        return graph.lowered(made, axes)
    if op in ("avg_pool2d", "max_pool2d"):
        graph, made = _pooled(call, codes, parameters)
        return graph.lowered(made, LAST[4])
    graph, made = _LOWERED[op](call, codes, parameters)
    return graph.lowered(made)


def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
    """Refuse: float graphs of TOSA are judged by the specification's own tests."""
    raise RefusedError("only integer graphs are run")


def lower_sums(call: Call, codes: Codes, parameters: Parameters, variant: str) -> Lowered | None:
    """Return the graph without RESCALE; the reference model cannot return sums of 48 bits."""
    op = call.spec.op
    if op == "mul":
        graph, made = product(codes, parameters)
        return graph.lowered(made)
    if op in REDUCTIONS:
        graph, made = summed(call, codes, parameters)
        return graph.lowered(made)
    if kind_of(next(iter(parameters.inputs.values()))) != INT8:
        return None
    if op in CONVOLUTIONS:
        graph, made, axes = convolve(call, codes, parameters, sums=True)
        return graph.lowered(made, axes)
    if op == "fully_connected":
        graph, made = fully_connect(codes, parameters, sums=True)
    elif op == "matmul":
        graph, made = multiply_matrices(codes, parameters, sums=True)
    else:
        return None
    return graph.lowered(made)


def join(jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> Job:
    """Return one graph of all operators."""
    return joined.join(jobs, wires, outputs)


def _pooled(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return a pool of images; if the padding counts, a PAD with the zero point comes before it."""
    attrs: Mapping[str, Any] = call.attrs
    graph, params, output = TosaGraph(), parameters.inputs["x"], parameters.outputs["y"]
    held, kernel, stride = codes["x"].numpy(), attrs["kernel"], attrs["stride"]
    around = pool_padding(held.shape[2:], kernel, stride, attrs["padding"], ceil_mode=attrs["ceil_mode"])
    value, zero = graph.feed(held.transpose(FIRST[4]), kind_of(params)), int(params.zero_point)
    if attrs.get("count_include_pad", False):
        value = _padded(graph, value, [(0, 0), *around, (0, 0)], zero)
        around = [(0, 0), (0, 0)]
    # all before, then all after
    padding = [pair[side] for side in (0, 1) for pair in around]
    value, pads, sizes = used(graph, value, kernel, stride, padding)
    shape, windows = [value.shape[0], *sizes, value.shape[-1]], (list(kernel), list(stride), pads)
    if call.spec.op == "max_pool2d":
        return graph, graph.op(ts.Op.MAX_POOL2D, [value], shape, value.kind, *windows, PROPAGATE)
    zeros = [graph.const([zero], value.kind), graph.const([int(output.zero_point)], value.kind)]
    return graph, graph.op(ts.Op.AVG_POOL2D, [value, *zeros], shape, value.kind, *windows, INT32)


def _padded(graph: TosaGraph, value: Value, around: list[tuple[int, int]], code: int) -> Value:
    shape = [size + sum(pair) for size, pair in zip(value.shape, around, strict=True)]
    if tuple(shape) == value.shape:
        return value
    sizes = graph.sizes([part for pair in around for part in pair])
    return graph.op(ts.Op.PAD, [value, sizes, graph.const([code], value.kind)], shape, value.kind)


def _moved(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return an operator that moves codes without changing them."""
    attrs: Mapping[str, Any] = call.attrs
    graph, params, rank = TosaGraph(), parameters.inputs["x"], codes["x"].dim()
    value, _ = operand(graph, codes, parameters, "x", rank)
    match call.spec.op:
        case "transpose":
            return graph, graph.transpose(value, list(attrs["perm"]))
        case "reshape":
            shape = list(attrs["shape"])
            return graph, graph.op(ts.Op.RESHAPE, [value, graph.sizes(shape)], shape, value.kind)
        case _:
            pad, filler = attrs["padding"], torch.tensor(float(attrs["value"]))
            around = list(zip(pad[:rank], pad[rank:], strict=True))
            return graph, _padded(graph, value, around, int(quantize(filler, params, parameters.platform.quantizer)))


def _largest(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return ARGMAX, which gives the first of equal elements and drops its axis."""
    attrs: Mapping[str, Any] = call.attrs
    if attrs["select_last"]:
        raise RefusedError("ARGMAX gives the first of equal elements, not the last")
    graph, rank = TosaGraph(), codes["x"].dim()
    value, _ = operand(graph, codes, parameters, "x", rank)
    axis = attrs["axis"] % rank
    kept = [size for place, size in enumerate(value.shape) if place != axis]
    made = graph.op(ts.Op.ARGMAX, [value], kept, INT32, axis, PROPAGATE)
    # ARGMAX drops the axis; keepdims puts it back
    whole = [1 if place == axis else size for place, size in enumerate(value.shape)]
    return graph, graph.reshape(made, whole if attrs["keepdims"] else kept)


def _gathered(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return GATHER of rows [paired, counted, rest] by indices counted from the front, as importers write them."""
    attrs: Mapping[str, Any] = call.attrs
    graph, rank, pairs = TosaGraph(), codes["x"].dim(), attrs["batch_dims"]
    value, _ = operand(graph, codes, parameters, "x", rank)
    axis, own = attrs["axis"] % rank, codes["indices"].numpy()
    counted, outer = value.shape[axis], value.shape[:pairs]
    between, behind = value.shape[pairs:axis], value.shape[axis + 1 :]
    # GATHER indexes axis 1 of [n, k, c]: paired axes first, then the indexed one
    front = [*range(pairs), axis, *(place for place in range(pairs, rank) if place != axis)]
    rows = graph.transpose(value, front)
    rows = graph.reshape(rows, [math.prod(outer), counted, math.prod((*between, *behind))])
    places = graph.feed(np.where(own < 0, own + counted, own).reshape(math.prod(outer), -1), INT32, "indices")
    sizes = [rows.shape[0], places.shape[1], rows.shape[2]]
    taken = graph.reshape(graph.op(ts.Op.GATHER, [rows, places], sizes, value.kind), [*own.shape, *between, *behind])
    depth = own.ndim - pairs
    # axes between the paired ones and the indexed one return in front of the indices
    moved = range(own.ndim, own.ndim + len(between))
    rest = range(own.ndim + len(between), own.ndim + len(between) + len(behind))
    return graph, graph.transpose(taken, [*range(pairs), *moved, *range(pairs, pairs + depth), *rest])


def _joined(call: Call, codes: Codes, parameters: Parameters) -> Built:
    """Return CONCAT of operands, each first rescaled to the output's codes."""
    attrs: Mapping[str, Any] = call.attrs
    graph, rank = TosaGraph(), codes["a"].dim()
    parts = []
    for name in (name for name in call.spec.activations if name in codes):
        value, zero = operand(graph, codes, parameters, name, rank)
        parts.append(to_output(graph, value, zero, parameters, name))
    return graph, graph.concat(parts, attrs["axis"] % rank)


_LOWERED: Mapping[str, Callable[[Call, Codes, Parameters], Built]] = {
    "fully_connected": lambda _, codes, parameters: fully_connect(codes, parameters),
    "matmul": lambda _, codes, parameters: multiply_matrices(codes, parameters),
    "mul": elementwise_product,
    **dict.fromkeys((*SUMS, *CHOICES), element_wise),
    **dict.fromkeys(("sigmoid", "tanh", "leaky_relu"), looked_up),
    **dict.fromkeys(REDUCTIONS, reduced),
    "relu": rectified,
    "clip": rectified,
    "avg_pool2d": _pooled,
    "max_pool2d": _pooled,
    "transpose": _moved,
    "reshape": _moved,
    "pad": _moved,
    "argmax": _largest,
    "concat": _joined,
    "gather": _gathered,
}
