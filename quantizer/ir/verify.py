"""Validates graphs: an invalid graph is refused before it runs or is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch

from quantizer.core.errors import GraphError
from quantizer.ir.graph import FREE, Graph, Node, Tensor, container, nearest
from quantizer.numerics.qparams import QParams


def verify(graph: Graph, outer: Iterable[str] = ()) -> None:
    """Raise GraphError for the first rule that *graph* breaks; *outer* are the tensors of enclosing graphs."""
    where = f"graph {graph.name!r}"
    _unique(where, "node", (node.name for node in graph.nodes))
    _unique(where, "input", graph.inputs)
    for key, tensor in graph.tensors.items():
        if key != tensor.name:
            raise GraphError(f"{where}: tensor {tensor.name!r} is filed under {key!r}: use its own name.")
        _tensor(where, tensor, dynamic=graph.dynamic)
    made = _made(where, graph) | set(outer)
    for node in graph.nodes:
        for name in node.reads:
            _known(f"{where}: node {node.name!r}: input {name!r}", name, graph, made)
    if not graph.outputs:
        raise GraphError(f"{where}: no outputs: name at least one tensor.")
    for name in graph.outputs:
        _known(f"{where}: output {name!r}", name, graph, made)
    # raises GraphError for a cycle
    _ = graph.order
    for body in graph.subgraphs.values():
        verify(body, outer=graph.tensors.keys() | set(outer))


def _unique(where: str, what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if not name:
            raise GraphError(f"{where}: a {what} has no name.")
        if count > 1:
            raise GraphError(f"{where}: {count} {what}s are called {name!r}: every {what} needs a name of its own.")


def _known(place: str, name: str, graph: Graph, made: set[str]) -> None:
    if name not in graph.tensors:
        raise GraphError(f"{place}: no such tensor.{nearest(name, graph.tensors)}")
    if name not in made:
        raise GraphError(f"{place}: no node, input or constant makes it.{nearest(name, made)}")


def _made(where: str, graph: Graph) -> set[str]:
    """Return the tensors that are inputs, constants or results of nodes; an error if one is produced twice."""
    makers: dict[str, Node | None] = {}
    for name, tensor in graph.tensors.items():
        if tensor.is_constant:
            makers[name] = None
    for name in graph.inputs:
        if name not in graph.tensors:
            raise GraphError(f"{where}: input {name!r}: no such tensor.{nearest(name, graph.tensors)}")
        if name in makers:
            raise GraphError(f"{where}: input {name!r} is a constant: an input has no data.")
    for node in graph.nodes:
        for name in node.outputs:
            if name not in graph.tensors:
                raise GraphError(f"{where}: node {node.name!r}: output {name!r}: no such tensor.")
            if name in makers:
                first = makers[name]
                other = "a constant" if first is None else f"node {first.name!r}"
                raise GraphError(f"{where}: tensor {name!r} is made by {other} and by node {node.name!r}: rename one.")
            if name in graph.inputs and node.inputs:
                raise GraphError(f"{where}: tensor {name!r} is an input and is made by node {node.name!r}: rename one.")
            makers[name] = node
    return makers.keys() | set(graph.inputs)


def _tensor(where: str, tensor: Tensor, *, dynamic: bool) -> None:
    place = f"{where}: tensor {tensor.name!r}"
    least = FREE if dynamic else 1
    for size in tensor.shape:
        if size < least:
            raise GraphError(f"{place}: shape {list(tensor.shape)}: every size must be at least {least}, got {size}.")
    if tensor.data is not None:
        _data(place, tensor, tensor.data, dynamic=dynamic)
    if tensor.qparams is not None:
        _qparams(place, tensor, tensor.qparams)


def _data(place: str, tensor: Tensor, data: torch.Tensor, *, dynamic: bool) -> None:
    if tuple(data.shape) != tensor.shape:
        raise GraphError(f"{place}: declared shape {list(tensor.shape)}, data of shape {list(data.shape)}.")
    if data.dtype != container(tensor.dtype):
        raise GraphError(f"{place}: declared {tensor.dtype}, kept as {container(tensor.dtype)}, data of {data.dtype}.")
    if data.is_floating_point() and not dynamic:
        # 8-bit floats are widened, because torch has few operations on them
        bad = torch.isnan(data if data.element_size() > 1 else data.to(torch.float32))
        if bool(bad.any()):
            raise GraphError(f"{place}: NaN at {bad.nonzero()[0].tolist()}: constants must be numbers.")
    elif tensor.dtype.is_integer and tensor.dtype.bits < 8 * data.element_size():
        codes = data.detach().cpu().numpy()
        outside = np.argwhere((codes < tensor.dtype.min) | (codes > tensor.dtype.max))
        if len(outside):
            index = tuple(int(i) for i in outside[0])
            span = f"[{tensor.dtype.min}, {tensor.dtype.max}]"
            raise GraphError(f"{place}: code {codes[index]} at {list(index)}: {tensor.dtype} holds {span}.")


def _qparams(place: str, tensor: Tensor, params: QParams) -> None:
    bad = ~torch.isfinite(params.scale) | (params.scale <= 0)
    if bool(bad.any()):
        raise GraphError(f"{place}: scale {params.scale[bad][0].item()}: must be positive and finite.")
    outside = (params.zero_point < params.qmin) | (params.zero_point > params.qmax)
    if bool(outside.any()):
        value, span = params.zero_point[outside][0].item(), f"[{params.qmin}, {params.qmax}]"
        raise GraphError(f"{place}: zero point {value}: must be one of the codes {span}.")
    if params.scale.shape != params.zero_point.shape:
        shapes = f"{list(params.scale.shape)} and {list(params.zero_point.shape)}"
        raise GraphError(f"{place}: scale and zero point have shapes {shapes}: must be the same.")
    if tensor.dtype.is_integer and params.dtype != tensor.dtype:
        raise GraphError(f"{place}: holds {tensor.dtype}, its quantization parameters are for {params.dtype}.")
    if params.scale.dim() == 0:
        return
    axis, rank = params.axis, len(tensor.shape)
    if params.scale.dim() > 1 or axis is None or not -rank <= axis < rank:
        raise GraphError(f"{place}: scale of shape {list(params.scale.shape)} along axis {axis} of rank {rank}.")
    if params.scale.numel() != tensor.shape[axis]:
        sizes = f"{params.scale.numel()} scales, axis {axis} has {tensor.shape[axis]} slices"
        raise GraphError(f"{place}: {sizes}: every slice needs one scale.")
