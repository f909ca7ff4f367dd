"""Gives a quantized graph the scales and zero points that a platform takes.

These are unsigned codes, and results with the scale and zero point of their operand. Our quantizer of ONNX graphs
chooses others. If the operand of an operator that keeps these numbers holds no codes, it gets codes with those of the
result. A kernel that fuses the operator with the node before must then give what both give one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import torch

from quantizer.conformance.fusion.cases import MIDDLE, Built
from quantizer.core.dtypes import DTYPES
from quantizer.core.library import load_library
from quantizer.core.platforms import Platform
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.models.parts import DEQUANTIZE, QUANTIZE

CODED = ("Add", "Mul", "Concat")
"""Operators of ONNX whose constants are activations on the platforms, not weights."""
UNSIGNED = DTYPES["uint8"]
Numbers = tuple[str | None, ...]


def with_numbers_of(built: Built, platform: str) -> Built:
    """Return the graph with the numbers that *platform* takes, as far as it can have them."""
    known = load_library().platforms[platform]
    tied = _tied(built.graph, known)
    return replace(built, graph=_unsigned(tied) if known.parameters.activation_sign == "unsigned" else tied)


def _tied(graph: Graph, platform: Platform) -> Graph:
    """Give the result of each operator in *platform*'s `same_as_input` its operand's scale and zero point."""
    families = {spec.names.get("onnx"): spec.quantization.family for spec in load_library().specs.values()}
    kept = [node for node in graph.order if families.get(node.op) in platform.same_as_input]
    graph = functools.reduce(_with_coded_operand, kept, graph)
    given: dict[str, Numbers] = {}
    for node in kept:
        maker = graph.producers.get(str(graph.node(node.name).inputs[0]))
        if maker is not None and maker.op == DEQUANTIZE:
            # in the graph's order, so that a chain of such operators all get the numbers of the first operand
            given |= dict.fromkeys(_around(graph, node), given.get(maker.name, maker.inputs[1:]))
    nodes = (
        replace(node, inputs=(node.inputs[0], *given[node.name])) if node.name in given else node
        for node in graph.nodes
    )
    return graph.with_(nodes=tuple(nodes))


def _with_coded_operand(graph: Graph, node: Node) -> Graph:
    """Quantize the operand of *node*, if it is real, with the scale and zero point of the node's result."""
    name = str(node.inputs[0])
    maker, readers = graph.producers.get(name), graph.consumers.get(node.outputs[0], ())
    written = next((reader for reader in readers if reader.op == QUANTIZE), None)
    if maker is None or maker.op == DEQUANTIZE or written is None:
        return graph
    codes, values = f"{name}@codes", f"{name}@quantized"
    added = (
        replace(written, name=f"{name}@quantize", inputs=(name, *written.inputs[1:]), outputs=(codes,)),
        Node(f"{name}@dequantize", DEQUANTIZE, (codes, *written.inputs[1:]), (values,)),
    )
    changed = replace(node, inputs=(values, *node.inputs[1:]))
    nodes = (one for old in graph.nodes for one in ((*added, changed) if old.name == node.name else (old,)))
    held = replace(graph.tensor(written.outputs[0]), name=codes)
    return graph.with_(nodes=tuple(nodes)).with_tensors(held, replace(graph.tensor(name), name=values))


def _around(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the names of the nodes that quantize a result, and of those that dequantize its codes."""
    for reader in graph.consumers.get(node.outputs[0], ()):
        if reader.op == QUANTIZE:
            yield reader.name
            yield from (other.name for other in graph.consumers.get(reader.outputs[0], ()))


def _unsigned(graph: Graph) -> Graph:
    """Return *graph* with activation codes from 0 to 255 instead of -128 to 127."""
    coded = [node for node in graph.nodes if node.op == QUANTIZE or _holds_activation(graph, node)]
    zeros = {str(node.inputs[2]) for node in coded}
    codes = {str(node.outputs[0] if node.op == QUANTIZE else node.inputs[0]) for node in coded}
    return graph.with_tensors(*(_moved(graph.tensor(name)) for name in sorted(zeros | codes)))


def _holds_activation(graph: Graph, node: Node) -> bool:
    readers = graph.consumers.get(node.outputs[0], ())
    return node.op == DEQUANTIZE and any(reader.op in CODED for reader in readers)


def _moved(tensor: Tensor) -> Tensor:
    # int16, because 127 + 128 leaves int8
    data = None if tensor.data is None else (tensor.data.to(torch.int16) + MIDDLE).to(torch.uint8)
    return replace(tensor, dtype=UNSIGNED, data=data)
