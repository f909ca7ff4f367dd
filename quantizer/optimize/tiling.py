"""Layers cut into tiles: Crop, the same layers on each tile, Concat; what comes out is equal, code for code."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from quantizer.core.case import AttrValue as CaseAttr
from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import FormatError
from quantizer.core.spec import NoTiling, Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_params import AXES
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor
from quantizer.optimize.cfg import Options
from quantizer.optimize.conversions import MAKER
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.quantizing import operand_shape
from quantizer.optimize.running import CONCAT, CROP
from quantizer.tiling.windows import part, tileable_axes

HALO = ("oh", "ow")
"""Axes of a window operator that can be cut."""
FEWEST_ROWS, MOST_ROWS = 5, 15
"""Rows of a tile that is made to fit a memory (Compass)."""
KILOBYTE = 1024
Span = tuple[int, int]
Area = tuple[Span, Span]
"""Rows and columns, each from a first one to the one after the last."""


@dataclass(frozen=True)
class Cuts:
    """Where the output of a chain is cut, and how many tiles one Concat joins (0: all of a row)."""

    rows: tuple[Span, ...]
    columns: tuple[Span, ...]
    joined: int = 0


def tiled(graph: Graph, specs: Mapping[str, Spec], options: Options, keys: Mapping[str, LayerKey]) -> Graph:
    """Return the quantized graph with chains of layers cut as the cfg says; the same graph where it says nothing.

    Explicit chains of `featuremap_tiling_param` come first, then a memory of `featuremap_splits_sram_size`, then the numbers
    of tiles. A chain grows while the rows and columns that tiles share are at most `featuremap_splits_overlap_rate` percent.
    """
    wide, high = options.number("featuremap_splits_item_x"), options.number("featuremap_splits_item_y")
    size, asked = options.number("featuremap_splits_sram_size"), options.text("featuremap_tiling_param")
    if asked:
        for first, last, rows, columns in _asked(asked):
            chain = _between(graph, specs, keys, (first, last), options)
            graph = _cut(graph, specs, chain, _even(graph, chain[-1], rows, columns))
        return graph
    if size == 0 and wide == high == 1:
        return graph
    done: set[str] = set()
    for node in graph.order:
        if node.name not in done and _kind(graph, specs, node) == "halo":
            chain, cuts = _grown(graph, specs, node, options)
            done |= {layer.name for layer in chain}
            graph = _cut(graph, specs, chain, cuts)
    return graph


def _grown(graph: Graph, specs: Mapping[str, Spec], first: Node, options: Options) -> tuple[list[Node], Cuts]:
    """Return the longest chain from a layer on whose tiles do not share too much, and its cuts."""
    wide, high = options.number("featuremap_splits_item_x"), options.number("featuremap_splits_item_y")
    size, block = options.number("featuremap_splits_sram_size"), options.number("featuremap_splits_concat_blk")

    def cuts(chain: Sequence[Node]) -> Cuts:
        return _fitting(graph, specs, chain, size * KILOBYTE, block) if size else _even(graph, chain[-1], high, wide)

    chain = [first]
    found = cuts(chain)
    while (following := _following(graph, specs, chain[-1])) is not None:
        longer = [*chain, following]
        if _overlap(graph, specs, longer, own := cuts(longer)) > options.number("featuremap_splits_overlap_rate"):
            break
        chain, found = longer, own
    return chain, found


def _asked(text: str) -> Iterator[tuple[int, ...]]:
    for numbers in re.findall(r"\((\d+),(\d+),(\d+),(\d+)\)", text):
        yield tuple(int(number) for number in numbers)


def _between(
    graph: Graph, specs: Mapping[str, Spec], keys: Mapping[str, LayerKey], ends: Span, options: Options
) -> list[Node]:
    """Return the layers from one number to another; FormatError where they are no chain that can be cut."""
    chain = [node for node in graph.order if node.name in keys and ends[0] <= keys[node.name].number <= ends[1]]
    linked = all(_following(graph, specs, node) is other for node, other in pairwise(chain))
    if not chain or not linked or any(_kind(graph, specs, node) is None for node in chain):
        names = ", ".join(node.name for node in chain) or "no layer"
        text = f"layers {ends[0]} to {ends[1]} ({names}) are no chain of layers over rows and columns, each read by the next."
        raise FormatError(str(options.error("featuremap_tiling_param", text)))
    return chain


def _kind(graph: Graph, specs: Mapping[str, Spec], node: Node) -> str | None:
    """Return halo for a layer of windows, alike for one whose rows and columns are those of its only input, else None."""
    spec = specs.get(node.op)
    if spec is None or CONSTANTS in node.extra or isinstance(spec.tiling, NoTiling) or len(spec.activations) != 1:
        return None
    shape, made = graph.tensor(str(node.inputs[0])).shape, graph.tensor(node.outputs[0]).shape
    if len(shape) != 4 or len(node.outputs) != 1:
        return None
    axes = tileable_axes(spec, _shapes(graph, spec, node), node.attrs)
    if all(axis in spec.tiling and axis in axes for axis in HALO):
        return "halo"
    rule = spec.tiling.get("*")
    free = rule is not None and rule.rule == "independent" and rule.input_axis is None and {"d1", "d2"} <= axes.keys()
    return "alike" if free and made == shape and not spec.inputs[spec.activations[0]].spatial else None


def _following(graph: Graph, specs: Mapping[str, Spec], node: Node) -> Node | None:
    """Return the only reader of a layer, where it can be in the same tiles."""
    made = node.outputs[0]
    readers = graph.consumers.get(made, ())
    alone = len(readers) == 1 and made not in graph.outputs
    return readers[0] if alone and _kind(graph, specs, readers[0]) is not None else None


def _shapes(graph: Graph, spec: Spec, node: Node) -> dict[str, tuple[int, ...]]:
    operands = {key: name for key, name in zip(spec.inputs, node.inputs, strict=True) if name is not None}
    return {key: operand_shape(graph, node, spec, key, name) for key, name in operands.items()}


def _spans(size: int, count: int) -> tuple[Span, ...]:
    """Return *count* equal parts, the last with what is left over; as many as there are where that is less."""
    count = min(count, size)
    step = size // count
    return tuple((i * step, size if i == count - 1 else (i + 1) * step) for i in range(count))


def _even(graph: Graph, last: Node, rows: int, columns: int) -> Cuts:
    _, height, width, _ = graph.tensor(last.outputs[0]).shape
    return Cuts(_spans(height, rows), _spans(width, columns))


def _fitting(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], size: int, joined: int) -> Cuts:
    """Return cuts of as many rows as let every layer's input and output fit *size* bytes, within Compass's two ends."""
    _, height, width, _ = graph.tensor(chain[-1].outputs[0]).shape

    def spans(rows: int) -> tuple[Span, ...]:
        return tuple((start, min(start + rows, height)) for start in range(0, height, rows))

    def fits(rows: int) -> bool:
        return all(_bytes(graph, specs, chain, (span, (0, width))) <= size for span in spans(rows))

    rows = next((rows for rows in range(MOST_ROWS, FEWEST_ROWS, -1) if fits(rows)), FEWEST_ROWS)
    return Cuts(spans(rows), ((0, width),), joined)


def _bytes(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], area: Area) -> int:
    """Return the bytes of the largest input and output of one layer that a tile holds."""
    most = 0
    for node in reversed(chain):
        before, _ = _needed(graph, specs, node, area)
        sizes = ((str(node.inputs[0]), before), (node.outputs[0], area))
        most = max(most, sum(_places(own) * _depth(graph.tensor(name)) for name, own in sizes))
        area = before
    return most


def _depth(tensor: Tensor) -> int:
    return tensor.shape[0] * tensor.shape[-1] * math.ceil(tensor.dtype.bits / 8)


def _places(area: Area) -> int:
    return math.prod(stop - start for start, stop in area)


def _overlap(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], cuts: Cuts) -> float:
    """Return by how many percent the places that all tiles read are more than those of the chain's input."""
    read = 0
    for area in _areas(cuts):
        for node in reversed(chain):
            area, _ = _needed(graph, specs, node, area)  # noqa: PLW2901 - from layer to layer
        read += _places(area)
    _, height, width, _ = graph.tensor(str(chain[0].inputs[0])).shape
    return 100.0 * (read / (height * width) - 1.0)


def _areas(cuts: Cuts) -> list[Area]:
    return [(rows, columns) for rows in cuts.rows for columns in cuts.columns]


def _needed(graph: Graph, specs: Mapping[str, Spec], node: Node, area: Area) -> tuple[Area, Mapping[str, AttrValue]]:
    """Return the area of its input that a layer reads for an area of its output, and its attributes there."""
    if _kind(graph, specs, node) == "alike":
        return area, node.attrs
    spec = specs[node.op]
    tile = part(
        spec, _shapes(graph, spec, node), cast("Mapping[str, CaseAttr]", node.attrs), dict(zip(HALO, area, strict=True))
    )
    _, _, rows, columns = tile.inputs[spec.activations[0]]
    return (rows, columns), tile.attrs


def _cut(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], cuts: Cuts) -> Graph:
    """Return the graph with a chain in tiles; unchanged for one tile, or where a tile would see nothing but padding."""
    areas = _areas(cuts)
    source, target = graph.tensor(str(chain[0].inputs[0])), graph.tensor(chain[-1].outputs[0])
    made: list[Node] = []
    tensors: list[Tensor] = []
    ends: list[str] = []
    for number, area in enumerate(areas):
        steps: list[tuple[Node, Area, Mapping[str, AttrValue]]] = []
        for node in reversed(chain):
            before, attrs = _needed(graph, specs, node, area)
            steps.insert(0, (node, area, attrs))
            area = before  # noqa: PLW2901 - from layer to layer
            if _places(area) == 0:
                return graph
        name = f"{source.name}_crop_{chain[0].name}_{number}"
        made.append(_inserted(name, CROP, (source.name,), chain[0], {"crops": _crops(source, area)}))
        tensors.append(_piece(source, name, area))
        for node, own, attrs in steps:
            output = f"{node.outputs[0]}_tile_{number}"
            made.append(
                replace(
                    node,
                    name=f"{node.name}_tile_{number}",
                    inputs=(name, *node.inputs[1:]),
                    outputs=(output,),
                    attrs=attrs,
                )
            )
            name = output
            tensors.append(_piece(graph.tensor(node.outputs[0]), name, own))
        ends.append(name)
    if len(areas) < 2:
        return graph
    across = len(cuts.columns)
    rows = [ends[i : i + across] for i in range(0, len(ends), across)]
    lines = [
        _joined(row, target, 2, f"{target.name}_row_{i}", chain[-1], 0, made, tensors) for i, row in enumerate(rows)
    ]
    last = _joined(lines, target, 1, f"{target.name}_all", chain[-1], cuts.joined, made, tensors)
    return _put(graph, chain, made, tensors, last, target)


def _joined(
    names: list[str],
    target: Tensor,
    axis: int,
    stem: str,
    maker: Node,
    block: int,
    made: list[Node],
    tensors: list[Tensor],
) -> str:
    """Add Concats of at most *block* tiles (0: any number) to *made*, and return the tensor that they end in."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    level = 0
    while len(names) > 1:
        size, groups = block or len(names), []
        for number, start in enumerate(range(0, len(names), max(2, size))):
            group = names[start : start + max(2, size)]
            if len(group) == 1:
                groups += group
                continue
            name = f"{stem}_{level}_{number}"
            made.append(_inserted(name, CONCAT, tuple(group), maker, _copying(axis, len(group))))
            shape = shapes[group[0]]
            shape = (*shape[:axis], sum(shapes[own][axis] for own in group), *shape[axis + 1 :])
            shapes[name] = shape
            tensors.append(replace(target, name=name, shape=shape))
            groups.append(name)
        names, level = groups, level + 1
    return names[0]


def _put(
    graph: Graph, chain: Sequence[Node], made: list[Node], tensors: list[Tensor], last: str, target: Tensor
) -> Graph:
    """Return the graph with the nodes of a chain replaced; what they end in gets the name of the chain's output."""
    *rest, end = made
    made = [*rest, replace(end, outputs=tuple(target.name if name == last else name for name in end.outputs))]
    gone = {node.name for node in chain}
    place = next(i for i, node in enumerate(graph.nodes) if node.name == chain[-1].name)
    before = [node for node in graph.nodes[:place] if node.name not in gone]
    kept = {name: tensor for name, tensor in graph.tensors.items() if name not in {n.outputs[0] for n in chain[:-1]}}
    kept |= {tensor.name: tensor for tensor in tensors if tensor.name != last}
    return graph.with_(nodes=(*before, *made, *graph.nodes[place + 1 :]), tensors=kept)


def _inserted(name: str, op: str, inputs: tuple[str, ...], maker: Node, attrs: Mapping[str, AttrValue]) -> Node:
    said: dict[str, AttrValue] = {"is_perf_mode": True, "unquantifiable": False, AXES: ("None",)}
    return Node(name, op, inputs, (name,), {**attrs, **said}, "channels_last", {CONSTANTS: (), MAKER: maker.name})


def _crops(source: Tensor, area: Area) -> AttrValue:
    return ((0, source.shape[0]), *area, (0, source.shape[3]))


def _copying(axis: int, count: int) -> dict[str, AttrValue]:
    """Return the parameters of a Concat that copies codes: the multiplier 1 without a shift."""
    return {
        "axis": axis, "scale_value": (1,) * count, "shift_value": (0,) * count, "scale_type": (DTYPES["uint8"],) * count,
        "shift_type": (DTYPES["int8"],) * count,
    }  # fmt: skip


def _piece(tensor: Tensor, name: str, area: Area) -> Tensor:
    sizes = (stop - start for start, stop in area)
    return replace(tensor, name=name, shape=(tensor.shape[0], *sizes, tensor.shape[3]))
