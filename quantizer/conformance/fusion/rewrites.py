"""Our own rewrites of a quantized graph: each keeps every code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from quantizer.core.graph_spec import GraphSpec
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.formats.onnx_write import to_model
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.models.parts import DEQUANTIZE, QUANTIZE

Rewrite = Callable[[Graph], Graph]


def written_and_read(graph: Graph) -> Graph:
    """Return the graph after it was written to an ONNX file and read back."""
    return from_model(to_model(graph))


def duplicated(graph: Graph) -> Graph:
    """Return the graph with a separate dequantization for each reader, as exporters write it."""
    nodes: list[Node] = []
    added = {}
    for node in graph.order:
        inputs = list(node.inputs)
        for place, name in enumerate(node.inputs):
            maker = graph.producers.get(name) if name is not None else None
            if maker is None or maker.op != DEQUANTIZE or len(graph.consumers[str(name)]) < 2:
                continue
            own = f"{name}@{node.name}"
            if own not in added:
                added[own] = replace(graph.tensor(str(name)), name=own)
                nodes.append(replace(maker, name=f"{maker.name}@{node.name}", outputs=(own,)))
            inputs[place] = own
        nodes.append(replace(node, inputs=tuple(inputs)))
    # the shared dequantization has no reader any more
    return _used(graph.with_(nodes=tuple(nodes), tensors={**graph.tensors, **added}))


def quantized_twice(graph: Graph) -> Graph:
    """Return the graph with each dequantized tensor quantized and dequantized once more under the same numbers."""
    nodes: list[Node] = []
    added = {}
    for node in graph.order:
        nodes.append(node)
        made = node.outputs[0]
        if node.op != DEQUANTIZE or made in graph.outputs or graph.tensor(str(node.inputs[0])).data is not None:
            continue
        first, codes = f"{made}@first", f"{made}@codes"
        # real -> codes -> real once more under the same numbers: codes are fixed points of this, so nothing changes
        nodes[-1] = replace(node, outputs=(first,))
        nodes.append(
            replace(node, name=f"{node.name}@q", op=QUANTIZE, inputs=(first, *node.inputs[1:]), outputs=(codes,))
        )
        nodes.append(replace(node, name=f"{node.name}@dq", inputs=(codes, *node.inputs[1:])))
        added[first] = replace(graph.tensor(made), name=first)
        added[codes] = replace(graph.tensor(str(node.inputs[0])), name=codes)
    return graph.with_(nodes=tuple(nodes), tensors={**graph.tensors, **added})


def _used(graph: Graph) -> Graph:
    """Return *graph* without unused dequantizations."""
    read = {name for node in graph.nodes for name in node.reads} | set(graph.outputs)
    return graph.with_(nodes=tuple(n for n in graph.nodes if n.op != DEQUANTIZE or n.outputs[0] in read))


def swapped(spec: GraphSpec) -> Rewrite | None:
    """Return the rewrite that reverses the pairs of the spec's `orders`; None without pairs."""
    if not spec.orders:
        return None

    def rewrite(graph: Graph) -> Graph:
        for first, second in spec.orders:
            if f"{second}#quantize" in {node.name for node in graph.nodes}:
                graph = _swapped(graph, first, second)
        return graph

    return rewrite


def _swapped(graph: Graph, first: str, second: str) -> Graph:
    """Return *graph* with *second*, which moves codes, before *first*.

    A movement keeps the parameters of its operand, so the moved operand has the parameters that *first* reads. The
    results of *first* keep their scale and zero point.
    """
    a, b = graph.node(first), graph.node(second)
    source = graph.producers[str(a.inputs[0])]
    turned, codes, real = f"{second}@codes", f"{second}@moved", f"{second}@real"
    shape = graph.tensor(b.outputs[0]).shape
    moved = replace(b, name=f"{second}@{first}", outputs=(real,))
    again = replace(
        source, name=f"{source.name}@{first}", op=QUANTIZE, inputs=(real, *source.inputs[1:]), outputs=(codes,)
    )
    back = replace(source, name=f"{source.name}@back", inputs=(codes, *source.inputs[1:]), outputs=(turned,))
    moved = replace(moved, inputs=(a.inputs[0], *b.inputs[1:]))
    after = replace(a, inputs=(turned, *a.inputs[1:]), outputs=b.outputs)
    dropped = {a.name, b.name, f"{first}#quantize", f"{first}#dequantize"}
    nodes = [node for node in graph.nodes if node.name not in dropped]
    tensors = {
        **graph.tensors,
        real: replace(graph.tensor(b.outputs[0]), name=real, shape=shape),
        codes: replace(graph.tensor(str(source.inputs[0])), name=codes, shape=shape),
        turned: replace(graph.tensor(b.outputs[0]), name=turned, shape=shape),
    }
    found = graph.with_(nodes=(*nodes, moved, again, back, after), tensors=tensors)
    return found.with_(nodes=found.order)


def own_rewrites(spec: GraphSpec) -> Mapping[str, Rewrite]:
    """Return our rewrites of a graph by name."""
    found: dict[str, Rewrite] = {
        "written and read": written_and_read,
        "a dequantization for each reader": duplicated,
        "quantized twice": quantized_twice,
    }
    other = swapped(spec)
    return found if other is None else found | {"in another order": other}
