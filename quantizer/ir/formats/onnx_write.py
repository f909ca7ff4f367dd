"""The IR as an ONNX file: nodes under ONNX's names, as `formats.onnx` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import defs, helper, numpy_helper

from quantizer.core.dtypes import DType
from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.core.files import replace_files
from quantizer.ir.formats.onnx_values import CODES, to_numpy
from quantizer.ir.graph import FREE, Graph, Node, Tensor

IR_VERSION = 10
"""The opset of the file. It has 4-bit integers, and onnxruntime 1.18 and later read it."""
OWN_OPSET = 1
"""The version under which domains other than ONNX's are imported."""


def save(graph: Graph, path: Path | str) -> None:
    """Write *graph* to *path*, completely or not at all; UnsupportedError for nodes that ONNX does not have."""
    replace_files({Path(path): [to_model(graph).SerializeToString()]}, FormatError)


def to_model(graph: Graph) -> onnx.ModelProto:
    """Return *graph* as a model of the opset that it was read with."""
    opset = graph.extra.get("opset")
    domains = sorted({node.op.partition("::")[0] for node in graph.nodes if "::" in node.op})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, OWN_OPSET) for domain in domains)]
    return helper.make_model(_graph(graph), opset_imports=imports, ir_version=IR_VERSION, producer_name="quantizer")


def _graph(graph: Graph, outer: frozenset[str] = frozenset()) -> onnx.GraphProto:
    constants = [
        numpy_helper.from_array(to_numpy(tensor.data, tensor.dtype), name)
        for name, tensor in graph.tensors.items()
        if tensor.data is not None and name not in outer
    ]
    seen = outer | frozenset(graph.tensors)
    return helper.make_graph(
        [_node(graph, node, seen) for node in graph.order],
        graph.name,
        [_value(graph.tensor(name)) for name in graph.inputs],
        [_value(graph.tensor(name)) for name in graph.outputs],
        constants,
    )


def _value(tensor: Tensor) -> onnx.ValueInfoProto:
    sizes: list[int | None] | None = (
        [None if size == FREE else size for size in tensor.shape] if tensor.ranked else None
    )
    return helper.make_tensor_value_info(tensor.name, CODES[tensor.dtype], sizes)


def _node(graph: Graph, node: Node, seen: frozenset[str]) -> onnx.NodeProto:
    domain, _, op = node.op.rpartition("::")
    # ONNX's operators begin with a capital, ours do not
    if node.parameters is not None or node.activation != "none" or op[:1].islower():
        raise UnsupportedError(f"node {node.name!r} ({node.op}): ONNX has no such operator, or none that is quantized.")
    attrs: dict[str, Any] = {}
    for key, value in node.attrs.items():
        if isinstance(value, str) and value in graph.subgraphs:
            attrs[key] = _graph(graph.subgraphs[value], seen)
        else:
            attrs[key] = CODES[value] if isinstance(value, DType) else value
    for key, kept in node.extra.items():
        if isinstance(kept, Tensor) and kept.data is not None:
            attrs[key] = numpy_helper.from_array(to_numpy(kept.data, kept.dtype), kept.name)
    outputs = ["" if name == f"{node.name}#{i}" else name for i, name in enumerate(node.outputs)]
    inputs = [name or "" for name in node.inputs]
    # make_node takes the type of a list from its items, which an empty one has not
    empty = [_empty(graph, node, key) for key, value in attrs.items() if value == ()]
    held = {key: value for key, value in attrs.items() if value != ()}
    made = helper.make_node(op, inputs, outputs, name=node.name, domain=domain, **held)
    made.attribute.extend(empty)
    return made


def _empty(graph: Graph, node: Node, key: str) -> onnx.AttributeProto:
    """Return an attribute that is an empty list of the type in the operator's schema."""
    domain, _, op = node.op.rpartition("::")
    opset = OWN_OPSET if domain else graph.extra.get("opset")
    known = defs.get_schema(op, opset, domain).attributes if defs.has(op, opset, domain) else {}
    if key not in known:
        raise UnsupportedError(
            f"node {node.name!r} ({node.op}): attribute {key!r} is an empty list, and no schema gives its type: "
            "leave it out."
        )
    return helper.make_attribute(key, (), attr_type=int(known[key].type))
