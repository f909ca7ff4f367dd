"""Runs one node of a graph by itself on the executor; control flow brings its bodies along."""

from __future__ import annotations

from dataclasses import replace

from quantizer.ir.graph import Graph, Node
from quantizer.runtime.dispatch import FP32
from quantizer.runtime.torch_executor import TorchExecutor


def alone(graph: Graph, node: Node) -> TorchExecutor:
    """Return an executor of *node* alone, by its ONNX kernel; all tensors that the node reads are fed by name.

    Raises UnsupportedError if it, or an operator in one of its bodies, has no kernel.
    """
    reads = tuple(dict.fromkeys(node.reads))
    held = {
        # constants are fed like every other operand, with any shape
        name: replace(graph.tensor(name), data=None, qparams=None, shape=(), ranked=False)
        for name in (*reads, *node.outputs)
    }
    part = Graph(
        graph.name,
        (replace(node, parameters=None),),
        held,
        reads,
        node.outputs,
        {},
        graph.bodies_of(node),
        dynamic=True,
    )
    return TorchExecutor(part, platform=FP32)
