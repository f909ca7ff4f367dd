"""Cuts layers into tiles: a Crop, the same layers on each tile, a Concat. All result codes stay equal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from quantizer.core.case import AttrValue as CaseAttr
from quantizer.core.errors import FormatError
from quantizer.core.spec import NoTiling, Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor
from quantizer.optimize.cfg import Options
from quantizer.optimize.layer_parameters import operand_shape
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.product_tiles import cut_product, is_product, numbers_of_tiles
from quantizer.optimize.running import CROP
from quantizer.optimize.tiles import Span, Tiles, spans
from quantizer.tiling.spread import Spread
from quantizer.tiling.windows import part, tileable_axes

HALO = ("oh", "ow")
"""Axes of a window operator that can be cut."""
SPREADING = "conv_transpose2d"
"""The operator that spreads rows instead of gathering them: its spec has no rule for tiles of rows."""
FEWEST_ROWS, MOST_ROWS = 5, 15
"""The smallest and the largest number of rows of a tile that must fit a memory (Compass)."""
KILOBYTE = 1024
Area = tuple[Span, Span]
"""Rows and columns, each as the first index and the index after the last."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of a chain's output, and how many tiles one Concat joins (0: a whole row)."""

    rows: tuple[Span, ...]
    columns: tuple[Span, ...]
    joined: int = 0


def tiled(graph: Graph, specs: Mapping[str, Spec], options: Options, keys: Mapping[str, LayerKey]) -> Graph:
    """Return the quantized graph with chains of layers cut as the cfg says; unchanged if the cfg has no such key.

    Explicit chains of `featuremap_tiling_param` come first, then a memory of `featuremap_splits_sram_size`, then the
    numbers of tiles. A chain grows while the rows and columns that tiles share are at most
    `featuremap_splits_overlap_rate` percent.
    """
    wide, high = options.number("featuremap_splits_item_x"), options.number("featuremap_splits_item_y")
    size, asked = options.number("featuremap_splits_sram_size"), options.text("featuremap_tiling_param")
    if asked:
        for first, last, rows, columns in _asked(asked):
            chain = _between(graph, specs, keys, (first, last), options)
            if is_product(chain[0]):
                graph = cut_product(graph, specs[chain[0].op], chain[0], rows, columns)
            else:
                graph = _cut(graph, specs, chain, _even(graph, chain[-1], rows, columns))
        return graph
    if size == 0 and wide == high == 1:
        return graph
    done: set[str] = set()
    for node in graph.order:
        if is_product(node):
            graph = cut_product(graph, specs[node.op], node, *numbers_of_tiles(graph, node, options))
        elif node.name not in done and _begins(graph, specs, node):
            chain, cuts = _grown(graph, specs, node, options)
            # a chain takes its layers along: they must not begin another
            done |= {layer.name for layer in chain}
            graph = _cut(graph, specs, chain, cuts)
    return graph


def _grown(graph: Graph, specs: Mapping[str, Spec], first: Node, options: Options) -> tuple[list[Node], Cuts]:
    """Return the longest chain, starting at a layer, whose tiles do not overlap too much, and its cuts."""
    wide, high = options.number("featuremap_splits_item_x"), options.number("featuremap_splits_item_y")
    size, block = options.number("featuremap_splits_sram_size"), options.number("featuremap_splits_concat_blk")

    def cuts(chain: Sequence[Node]) -> Cuts:
        return _fitting(graph, specs, chain, size * KILOBYTE, block) if size else _even(graph, chain[-1], high, wide)

    chain = [first]
    found = cuts(chain)
    while (following := _following(graph, specs, chain[-1])) is not None:
        longer = [*chain, following]
        small = following.op == SPREADING and not _large_enough(graph, specs, following)
        if small or _overlap(graph, specs, longer, own := cuts(longer)) > options.number(
            "featuremap_splits_overlap_rate"
        ):
            break
        chain, found = longer, own
    return chain, found


def _asked(text: str) -> Iterator[tuple[int, ...]]:
    for numbers in re.findall(r"\((\d+),(\d+),(\d+),(\d+)\)", text):
        yield tuple(int(number) for number in numbers)


def _between(
    graph: Graph, specs: Mapping[str, Spec], keys: Mapping[str, LayerKey], ends: Span, options: Options
) -> list[Node]:
    """Return the layers numbered *ends*, both included; FormatError unless they are one chain or one product."""
    chain = [node for node in graph.order if node.name in keys and ends[0] <= keys[node.name].number <= ends[1]]
    linked = all(_following(graph, specs, node) is other for node, other in pairwise(chain))
    alone = len(chain) == 1 and is_product(chain[0])
    if not alone and (not chain or not linked or any(_kind(graph, specs, node) is None for node in chain)):
        names = ", ".join(node.name for node in chain) or "no layer"
        text = (
            f"layers {ends[0]} to {ends[1]} ({names}) are neither a chain of layers over rows and columns, each read "
            "by the next, nor a product of codes."
        )
        raise FormatError(str(options.error("featuremap_tiling_param", text)))
    return chain


def _kind(graph: Graph, specs: Mapping[str, Spec], node: Node) -> str | None:
    """Return the halo of a layer with windows, or of one that keeps the rows and columns of its input; else None."""
    spec = specs.get(node.op)
    if spec is None or CONSTANTS in node.extra or isinstance(spec.tiling, NoTiling) or len(spec.activations) != 1:
        return None
    shape, made = graph.tensor(str(node.inputs[0])).shape, graph.tensor(node.outputs[0]).shape
    if len(shape) != 4 or len(node.outputs) != 1:
        return None
    if node.op == SPREADING:
        return "halo"
    axes = tileable_axes(spec, _shapes(graph, spec, node), node.attrs)
    if all(axis in spec.tiling and axis in axes for axis in HALO):
        return "halo"
    rule = spec.tiling.get("*")
    free = rule is not None and rule.rule == "independent" and rule.input_axis is None and {"d1", "d2"} <= axes.keys()
    return "alike" if free and made == shape and not spec.inputs[spec.activations[0]].spatial else None


def _begins(graph: Graph, specs: Mapping[str, Spec], node: Node) -> bool:
    """Return whether a chain of tiles may begin here: windows, or a transposed convolution with more rows than taps."""
    return _kind(graph, specs, node) == "halo" and (node.op != SPREADING or _large_enough(graph, specs, node))


def _large_enough(graph: Graph, specs: Mapping[str, Spec], node: Node) -> bool:
    shapes = _shapes(graph, specs[node.op], node)
    return shapes["x"][2] > shapes["weight"][2]


def _following(graph: Graph, specs: Mapping[str, Spec], node: Node) -> Node | None:
    """Return the only reader of a layer, if it can be in the same tiles; else None."""
    made = node.outputs[0]
    readers = graph.consumers.get(made, ())
    # a second reader needs the whole tensor, so the Concat must stand before it
    alone = len(readers) == 1 and made not in graph.outputs
    return readers[0] if alone and _kind(graph, specs, readers[0]) is not None else None


def _shapes(graph: Graph, spec: Spec, node: Node) -> dict[str, tuple[int, ...]]:
    operands = {key: name for key, name in zip(spec.inputs, node.inputs, strict=True) if name is not None}
    return {key: operand_shape(graph, node, spec, key, name) for key, name in operands.items()}


def _even(graph: Graph, last: Node, rows: int, columns: int) -> Cuts:
    _, height, width, _ = graph.tensor(last.outputs[0]).shape
    return Cuts(spans(height, rows), spans(width, columns))


def _fitting(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], size: int, joined: int) -> Cuts:
    """Return the cuts with the most rows at which each layer's input and output together fit *size* bytes.

    The number of rows stays within Compass's limits, FEWEST_ROWS and MOST_ROWS.
    """
    _, height, width, _ = graph.tensor(chain[-1].outputs[0]).shape

    def cut_by(rows: int) -> tuple[Span, ...]:
        return tuple((start, min(start + rows, height)) for start in range(0, height, rows))

    def fits(rows: int) -> bool:
        return all(_bytes(graph, specs, chain, (span, (0, width))) <= size for span in cut_by(rows))

    # FEWEST_ROWS is taken even if it does not fit
    rows = next((rows for rows in range(MOST_ROWS, FEWEST_ROWS, -1) if fits(rows)), FEWEST_ROWS)
    return Cuts(cut_by(rows), ((0, width),), joined)


def _bytes(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], area: Area) -> int:
    """Return the largest number of bytes that input and output of one layer take in a tile."""
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
    """Return by how many percent the number of places that all tiles read exceeds the size of the chain's input."""
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
    if node.op == SPREADING:
        return _spread(_shapes(graph, spec, node), node, area)
    tile = part(
        spec, _shapes(graph, spec, node), cast("Mapping[str, CaseAttr]", node.attrs), dict(zip(HALO, area, strict=True))
    )
    _, _, rows, columns = tile.inputs[spec.activations[0]]
    return (rows, columns), tile.attrs


def _spread(shapes: Mapping[str, tuple[int, ...]], node: Node, area: Area) -> tuple[Area, Mapping[str, AttrValue]]:
    """Return the input area that a transposed convolution reads for an area of its output, and its attributes there."""
    stride, dilation = (cast("Span", node.attrs[key]) for key in ("stride", "dilation"))
    padding = cast("tuple[int, int, int, int]", node.attrs["padding"])
    (rows, (top, bottom), below), (columns, (left, right), beside) = (
        # x [n, c, h, w], weight [.., .., kh, kw]; a dilated kernel extends over apart * (taps - 1) + 1 places
        Spread(size, step, apart * (taps - 1) + 1, before).tile(span)
        for size, step, apart, taps, before, span in zip(
            shapes["x"][2:], stride, dilation, shapes["weight"][2:], padding[:2], area, strict=True
        )
    )
    here: dict[str, AttrValue] = {"padding": (top, left, bottom, right), "output_padding": (below, beside)}
    return (rows, columns), {**node.attrs, **here}


def _cut(graph: Graph, specs: Mapping[str, Spec], chain: Sequence[Node], cuts: Cuts) -> Graph:
    """Return the graph with a chain in tiles; unchanged for one tile, or if a tile would consist only of padding."""
    areas = _areas(cuts)
    if len(areas) < 2:
        return graph
    source, tiles = graph.tensor(str(chain[0].inputs[0])), Tiles(chain, graph.tensor(chain[-1].outputs[0]))
    ends: list[str] = []
    for number, area in enumerate(areas):
        # from the last layer to the first: an area of an output determines the area of the input that it needs
        steps: list[tuple[Node, Area, Mapping[str, AttrValue]]] = []
        for node in reversed(chain):
            before, attrs = _needed(graph, specs, node, area)
            steps.insert(0, (node, area, attrs))
            area = before  # noqa: PLW2901 - from layer to layer
            # the tile would read nothing but padding, for which there is no Crop
            if _places(area) == 0:
                return graph
        box = _box(source, area)
        name = tiles.insert(
            f"{source.name}_crop_{chain[0].name}_{number}", CROP, (source.name,), chain[0], {"crops": box}
        )
        tiles.hold(source, name, box)
        for node, own, attrs in steps:
            made = graph.tensor(node.outputs[0])
            output = tiles.hold(made, f"{made.name}_tile_{number}", _box(made, own))
            inputs = (name, *node.inputs[1:])
            tiles.nodes.append(
                replace(node, name=f"{node.name}_tile_{number}", inputs=inputs, outputs=(output,), attrs=attrs)
            )
            name = output
        ends.append(name)
    # areas run over columns first, so each slice of this length is one row of tiles
    across = len(cuts.columns)
    rows = [ends[i : i + across] for i in range(0, len(ends), across)]
    return tiles.put(graph, tiles.join(rows, (1, 2), cuts.joined))


def _box(tensor: Tensor, area: Area) -> tuple[Span, ...]:
    return ((0, tensor.shape[0]), *area, (0, tensor.shape[3]))
