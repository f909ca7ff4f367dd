"""Tiles of matrix products: rows of the first factor by columns of the second, with these columns' constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from quantizer.core.case import AttrValue as CaseAttr
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import SLOPES
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor
from quantizer.numerics.qparams import Parameters
from quantizer.optimize.cfg import Options
from quantizer.optimize.layer_parameters import operand_shape
from quantizer.optimize.running import CROP, SLICE
from quantizer.optimize.tiles import Span, Tiles, spans
from quantizer.tiling.operands import cut_parameters
from quantizer.tiling.windows import Box, part, slices

AXES_OF: Mapping[str, tuple[str, str]] = {"fully_connected": ("n", "c_out"), "matmul": ("m", "p")}
"""Operator -> the axes of its output's rows and columns."""
OF_COLUMNS = ("scale", "shift", "weights_scale", "weights_zp", "biases_scale", "biases_zp", SLOPES)
"""Constants of a fully connected layer that may hold one number for each column."""


def is_product(node: Node) -> bool:
    """Return whether a layer is a product of codes.

    Products of real values are not cut, because sums might round otherwise.
    """
    return node.op in AXES_OF and isinstance(node.parameters, Parameters)


def numbers_of_tiles(graph: Graph, node: Node, options: Options) -> tuple[int, int]:
    """Return the numbers of rows and columns of tiles that the cfg requests for a product; (1, 1) without tiles.

    As in Compass, a product is not cut if it has no more rows or columns than tiles, if a memory size is given, or if a
    fully connected layer would have one row of tiles.
    """
    rows, columns = options.number("featuremap_splits_item_y"), options.number("featuremap_splits_item_x")
    *_, high, wide = graph.tensor(node.outputs[0]).shape
    whole = options.number("featuremap_splits_sram_size") > 0 or high <= rows or wide <= columns
    return (1, 1) if whole or (node.op == "fully_connected" and rows == 1) else (rows, columns)


def cut_product(graph: Graph, spec: Spec, node: Node, rows: int, columns: int) -> Graph:
    """Return the graph with a product in tiles: parts of its factors, products, Concats; unchanged for one tile."""
    target = graph.tensor(node.outputs[0])
    *leading, high, wide = target.shape
    lines, places = spans(high, rows), spans(wide, columns)
    if len(lines) * len(places) < 2:
        return graph
    tiles = Tiles((node,), target)
    cut = _Factors(graph, spec, node, tiles)
    made: list[list[str]] = []
    for line in lines:
        made.append([])
        for place in places:
            name = f"{node.name}_tile_{len(made) - 1}_{len(made[-1])}"
            output = tiles.hold(
                target, f"{target.name}_tile_{len(made) - 1}_{len(made[-1])}", (*((0, n) for n in leading), line, place)
            )
            tiles.nodes.append(replace(cut.node(line, place), name=name, outputs=(output,)))
            made[-1].append(output)
    return tiles.put(graph, tiles.join(made, (len(leading), len(leading) + 1)))


class _Factors:
    """The parts of a product's operands. Each part is created only once."""

    def __init__(self, graph: Graph, spec: Spec, product: Node, tiles: Tiles) -> None:
        self.graph, self.spec, self.product, self.tiles = graph, spec, product, tiles
        named = zip(spec.inputs, product.inputs, strict=True)
        self.operands = {key: name for key, name in named if name is not None}
        self.shapes = {k: operand_shape(graph, product, spec, k, name) for k, name in self.operands.items()}
        self.parts: dict[tuple[str, Box], str] = {}

    def node(self, rows: Span, columns: Span) -> Node:
        """Return the product of *rows* and *columns* as a node without a name."""
        attrs = cast("Mapping[str, CaseAttr]", self.product.attrs)
        tile = part(self.spec, self.shapes, attrs, dict(zip(AXES_OF[self.product.op], (rows, columns), strict=True)))
        inputs = tuple(
            None if key not in self.operands else self._part(key, tile.inputs[key]) for key in self.spec.inputs
        )
        parameters = cut_parameters(cast("Parameters", self.product.parameters), self.spec, tile)
        extra = {key: self._of_columns(key, value, columns) for key, value in self.product.extra.items()}
        return replace(self.product, inputs=inputs, parameters=parameters, extra=extra)

    def _part(self, key: str, box: Box) -> str:
        """Return a part of an operand, or the operand itself if the part is all of it."""
        name = self.operands[key]
        tensor = self.graph.tensor(name)
        if key in self.product.transposed:
            # the box is in the operator's order, and the file holds this factor transposed
            box = (*box[:-2], box[-1], box[-2])
        if all(own == (0, size) for own, size in zip(box, tensor.shape, strict=True)):
            return name
        # tiles of one row share its part of the first factor, and tiles of one column that of the second
        if (key, box) not in self.parts:
            made = f"{name}_{self.product.name}_{key}_{len(self.parts)}"
            # an activation needs a layer that cuts it when the graph runs; a constant is cut now
            make: Callable[[Tensor, str, Box], str] = self._cut if key in self.spec.activations else self._held
            self.parts[key, box] = make(tensor, made, box)
        return self.parts[key, box]

    def _cut(self, tensor: Tensor, name: str, box: Box) -> str:
        """Add the layer that cuts a part of an activation: a Slice before a MatMul, else a Crop (Compass)."""
        if self.product.op == "matmul":
            attrs: Mapping[str, AttrValue] = {
                "begin": tuple(start for start, _ in box),
                "end": tuple(stop for _, stop in box),
                "strides": (1,) * len(box),
            }
        else:
            attrs = {"crops": box}
        kind = SLICE if self.product.op == "matmul" else CROP
        made = self.tiles.insert(name, kind, (tensor.name,), self.product, attrs)
        return self.tiles.hold(replace(tensor, data=None), made, box)

    def _held(self, tensor: Tensor, name: str, box: Box) -> str:
        """Add the part of a constant."""
        assert tensor.data is not None
        params = tensor.qparams
        if params is not None and params.axis is not None:
            params = params.sliced(*box[params.axis])
        self.tiles.hold(tensor, name, box)
        self.tiles.tensors[name] = replace(
            self.tiles.tensors[name], data=tensor.data[slices(box)].contiguous(), qparams=params
        )
        return name

    def _of_columns(self, key: str, value: object, columns: Span) -> object:
        """Return an extra entry of the layer; if it holds one number per column, cut to these columns."""
        wide = self.graph.tensor(self.product.outputs[0]).shape[-1]
        # a last axis of another size holds one number for all columns
        if key not in OF_COLUMNS or not isinstance(value, Tensor) or columns == (0, wide) or value.shape[-1] != wide:
            return value
        assert value.data is not None
        data = value.data[..., columns[0] : columns[1]].contiguous()
        return replace(value, name=f"{value.name}:{columns[0]}", shape=tuple(data.shape), data=data)
