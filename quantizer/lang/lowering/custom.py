"""Custom operators: replaced by the graph that their definition builds."""

from __future__ import annotations

from dataclasses import replace

from quantizer.core.errors import UnsupportedError
from quantizer.lang.definitions import definition
from quantizer.lang.graph import Graph
from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers, placed
from quantizer.lang.tensor import Tensor


@lowers("Custom")
def custom(c: Call) -> list[Value]:
    """Lower the operators that the definition builds; their tensors are named after the node."""
    name, params = str(c.attr("name")), c.attr("params") or ()
    with Graph(name) as graph:
        fed = [
            Tensor(value.shape, f"operand_{i}", dtype=value.dtype.name)
            for i in range(len(c.values))
            for value in [c.value(i)]
        ]
        made = definition(name)(*fed, **{key: list(v) if isinstance(v, tuple) else v for key, v in params})
        results = [made] if isinstance(made, Tensor) else list(made)
        if len(results) != len(c.outputs) or not all(isinstance(item, Tensor) for item in results):
            raise UnsupportedError(f"custom operator {name!r} makes {len(results)} results: must be {len(c.outputs)}.")
        # an operand that the definition does not read was never added to the inner graph
        used = [tensor for tensor in fed if tensor.owner is graph]
        inner = graph.to_ir(inputs=used, outputs=results)
    prefix = f"{c.node.name}/{name}/"
    known = {str(tensor.name): c.value(i) for i, tensor in enumerate(fed)}
    tensors = {key: replace(tensor, name=prefix + key) for key, tensor in inner.tensors.items()}
    for key, tensor in tensors.items():
        if tensor.data is not None:
            known[key] = c.e.bind(tensor)
    # `placed` sets it to each inner node, and the outer node goes on after them
    place = c.e.place
    for node in inner.order:
        operands = [None if item is None else known[item] for item in node.inputs]
        given = [None if item is None else tensors[item] for item in node.inputs]
        wanted = [tensors[item] for item in node.outputs]
        outer = replace(node, name=prefix + node.name)
        known |= dict(zip(node.outputs, placed(c.e, outer, operands, given, wanted), strict=True))
    c.e.place = place
    return [known[str(tensor.name)] for tensor in results]
