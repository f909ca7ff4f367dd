"""Builds the parts of a tiled graph: layers that cut a tensor, layers that join parts, and their place in the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from quantizer.core.dtypes import DTYPES
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_params import AXES
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor
from quantizer.optimize.conversions import MAKER
from quantizer.optimize.running import CONCAT

Span = tuple[int, int]
"""A first index and the index after the last."""


def spans(size: int, count: int) -> tuple[Span, ...]:
    """Return *count* equal parts, the last with the remainder; fewer parts if there are fewer elements."""
    count = min(count, size)
    step = size // count
    return tuple((i * step, size if i == count - 1 else (i + 1) * step) for i in range(count))


@dataclass
class Tiles:
    """The layers that replace a chain of layers, in the order of execution, and their outputs."""

    chain: Sequence[Node]
    target: Tensor
    """The results of the chain."""
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def hold(self, tensor: Tensor, name: str, box: Sequence[Span]) -> str:
        """Add a tensor for a part under a new name, and return the name."""
        self.tensors[name] = replace(tensor, name=name, shape=tuple(stop - start for start, stop in box))
        return name

    def insert(self, name: str, op: str, inputs: tuple[str, ...], maker: Node, attrs: Mapping[str, AttrValue]) -> str:
        """Add a layer that moves codes, and return its output; *maker*: the layer whose settings it shows."""
        said: dict[str, AttrValue] = {"is_perf_mode": True, "unquantifiable": False, AXES: ("None",)}
        extra = {CONSTANTS: (), MAKER: maker.name}
        self.nodes.append(Node(name, op, inputs, (name,), {**attrs, **said}, "channels_last", extra))
        return name

    def join(self, rows: Sequence[Sequence[str]], axes: Span, block: int = 0) -> str:
        """Add Concats for the tiles of each row, then for at most *block* rows (0: all), and return the final tensor.

        axes: the axes of rows and columns.
        """
        name = self.target.name
        lines = [self._joined(row, axes[1], f"{name}_row_{i}", 0) for i, row in enumerate(rows)]
        return self._joined(lines, axes[0], f"{name}_all", block)

    def _joined(self, names: Sequence[str], axis: int, stem: str, block: int) -> str:
        level = 0
        while len(names) > 1:
            # Concats of one tile would not end, so each joins at least two
            size, groups = max(2, block or len(names)), []
            for number, start in enumerate(range(0, len(names), size)):
                group = names[start : start + size]
                groups.append(group[0] if len(group) == 1 else self._concat(group, axis, f"{stem}_{level}_{number}"))
            names, level = groups, level + 1
        return names[0]

    def _concat(self, group: Sequence[str], axis: int, name: str) -> str:
        shapes = [self.tensors[own].shape for own in group]
        whole = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
        self.tensors[name] = replace(self.target, name=name, shape=whole)
        return self.insert(name, CONCAT, tuple(group), self.chain[-1], _copying(axis, len(group)))

    def put(self, graph: Graph, last: str) -> Graph:
        """Return the graph with the chain replaced; *last*, the tiles' output, gets the name of the chain's output."""
        target, chain = self.target.name, self.chain
        made = [
            # readers of the chain keep reading the tensor that they name
            replace(node, outputs=tuple(target if name == last else name for name in node.outputs))
            for node in self.nodes
        ]
        gone = {node.name for node in chain}
        place = next(i for i, node in enumerate(graph.nodes) if node.name == chain[-1].name)
        before = [node for node in graph.nodes[:place] if node.name not in gone]
        nodes = (*before, *made, *graph.nodes[place + 1 :])
        # tensors of the chain that no remaining layer touches, such as weights that were cut
        unread = {name for node in chain for name in (*node.inputs, *node.outputs)}
        unread -= {name for node in nodes for name in (*node.inputs, *node.outputs)} | {*graph.inputs, *graph.outputs}
        kept = {name: tensor for name, tensor in graph.tensors.items() if name not in unread}
        kept |= {name: tensor for name, tensor in self.tensors.items() if name != last}
        return graph.with_(nodes=nodes, tensors=kept)


def _copying(axis: int, count: int) -> dict[str, AttrValue]:
    """Return the parameters of a Concat that copies codes: the multiplier 1 without a shift."""
    return {
        "axis": axis,
        "scale_value": (1,) * count,
        "shift_value": (0,) * count,
        "scale_type": (DTYPES["uint8"],) * count,
        "shift_type": (DTYPES["int8"],) * count,
    }
