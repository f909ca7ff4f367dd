"""Spreads known parameters to all tensors of a graph: through movements, and into fused activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from quantizer.core.platform_settings import Quantizer
from quantizer.core.spec import Spec
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import QParams
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.rules import same_numbers
from quantizer.runtime.onnx.kernels import specs

EXACT = Quantizer()
"""x / scale as a real number, rounded half to even."""


@dataclass
class Grids:
    """A float graph of the registry's operators, and the parameters of its tensors."""

    graph: Graph
    params: dict[str, QParams]
    names: dict[str, str] = field(default_factory=dict)
    """A removed tensor -> the tensor that has its values."""

    def renamed(self, name: str) -> str:
        """Return the tensor that has the values of *name*."""
        while name in self.names:
            name = self.names[name]
        return name


def spread(
    graph: Graph, params: Mapping[str, QParams], values: Mapping[str, str], origins: Mapping[str, tuple[str, ...]]
) -> Grids:
    """Return *graph* with *params* and all parameters that follow from them.

    A movement's result has its operand's parameters; a pad's only if the padding value is a code; an operand with no
    other reader has its movement's parameters. A rearranged constant has the parameters of its source. An activation is
    removed if it only clips values that its codes cannot represent anyway.
    """
    known = {name: grid for name, grid in params.items() if name in graph.tensors}
    known |= _rearranged(graph, params, values, origins)
    grids = Grids(graph, known)
    _through_movements(grids)
    _without_clips(grids)
    # a removed clip gave its operand parameters, which may follow through further movements
    _through_movements(grids)
    return grids


def _rearranged(
    graph: Graph, params: Mapping[str, QParams], values: Mapping[str, str], origins: Mapping[str, tuple[str, ...]]
) -> dict[str, QParams]:
    """Return the parameters of constants that the registry's form transposes or reshapes."""
    found: dict[str, QParams] = {}
    for node in graph.nodes:
        spec = specs().get(node.op)
        for key, name in zip(spec.inputs, node.inputs, strict=True) if spec is not None else ():
            data = None if name is None else graph.tensor(name).data
            if name is None or data is None or name in params:
                continue
            for source in origins.get(name, ()):
                grid = params.get(values.get(source, source))
                fitted = None if grid is None or spec is None else _fitted(data, grid, spec.inputs[key].channel_axis)
                if fitted is not None:
                    found[name] = fitted
    return found


def _fitted(data: torch.Tensor, grid: QParams, axis: int | None) -> QParams | None:
    """Return the grid on which every element lies; if it has several scales, they lie along *axis*."""
    if grid.axis is not None:
        if axis is None or data.shape[axis] != grid.scale.numel():
            return None
        grid = replace(grid, axis=axis)
    # the constant lies on the grid if its values come back unchanged
    codes = quantize(data.double(), grid, EXACT)
    return grid if torch.equal(dequantize(codes, grid).float(), data) else None


def _moves(spec: Spec | None) -> bool:
    if spec is None:
        return False
    return spec.quantization.outputs.get("y") == "same_as(x)" and spec.quantization.family == "movement"


def _through_movements(grids: Grids) -> None:
    """Spread parameters with one scale forwards, then backwards to operands without another reader."""
    graph = grids.graph
    moves = [node for node in graph.order if _moves(specs().get(node.op))]
    for node in moves:
        source, made = str(node.inputs[0]), node.outputs[0]
        own = grids.params.get(source)
        if own is not None and made not in grids.params and own.axis is None and _keeps_to(own, node):
            grids.params[made] = own
    # readers before their producers, so that a chain of movements is passed in one walk
    for node in reversed(moves):
        source, made = str(node.inputs[0]), node.outputs[0]
        alone = len(graph.consumers[source]) == 1 and source not in (*graph.outputs, *graph.inputs)
        own = grids.params.get(made)
        if own is not None and own.axis is None and source not in grids.params and alone and node.op != "pad":
            grids.params[source] = own


def _keeps_to(grid: QParams, node: Node) -> bool:
    """Return whether a movement of codes of *grid* gives only values of codes; a pad may add another value."""
    if node.op != "pad":
        return True
    value = torch.tensor(node.attrs["value"], dtype=torch.float32)
    return _fitted(value, grid, None) is not None


def _without_clips(grids: Grids) -> None:
    """Remove a clip whose operand has no other reader and whose codes never leave the interval."""
    kept: list[Node] = []
    rename: dict[str, str] = {}
    graph = grids.graph
    # bodies of control flow read tensors by their names
    captured = {name for node in graph.nodes for name in node.captures}
    for given in graph.order:
        node = replace(given, inputs=tuple(None if n is None else rename.get(n, n) for n in given.inputs))
        grid = grids.params.get(node.outputs[0])
        bounds = _bounds(node)
        source = str(node.inputs[0]) if node.inputs else ""
        own = grids.params.get(source)
        alone = len(graph.consumers.get(source, ())) == 1 and source not in (*graph.outputs, *graph.inputs)
        same = own is not None and grid is not None and same_numbers(own, grid)
        if (
            node.outputs[0] in captured
            or bounds is None
            or grid is None
            or not (same or (own is None and alone))
            or not _inside(grid, bounds)
        ):
            kept.append(node)
            continue
        grids.params[source] = grid
        rename[node.outputs[0]] = grids.names[node.outputs[0]] = source
        grids.params.pop(node.outputs[0])
    # an output may be the result of a removed clip
    outputs = tuple(rename.get(name, name) for name in graph.outputs)
    used = {name for node in kept for name in (*node.reads, *node.outputs)} | {*graph.inputs, *outputs}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in used}
    grids.graph = graph.with_(nodes=tuple(kept), tensors=tensors, outputs=tuple(dict.fromkeys(outputs)))


def _bounds(node: Node) -> tuple[float, float] | None:
    """Return the interval to which a node clips its operand; None if the node is no clip."""
    if node.op == "relu":
        return 0.0, float("inf")
    if node.op == "clip":
        low, high = node.attrs["low"], node.attrs["high"]
        assert isinstance(low, float)
        assert isinstance(high, float)
        return low, high
    return None


def _inside(grid: QParams, bounds: tuple[float, float]) -> bool:
    if grid.axis is not None:
        return False
    low, high = dequantize(torch.tensor([grid.qmin, grid.qmax]), grid).tolist()
    return bool(bounds[0] <= low and high <= bounds[1])
