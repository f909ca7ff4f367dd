"""ONNX's graphs, nodes and attributes as ours: every default filled in, constants read, bodies as subgraphs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import AttributeProto, defs, helper

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.ir.formats.onnx_values import dtype_of, read_tensor
from quantizer.ir.graph import FREE, LARGEST, ON_CODES, AttrValue, Graph, Node, Tensor

OLDEST = 7
"""The oldest opset that is read."""
NEWEST = 28
"""The newest opset for which the kernels were written and tested. The installed onnx may know newer ones."""
DOMAINS = ("", "ai.onnx")
"""The standard's own domain, under its two names."""
_SCALARS = {
    "value_float": ("float32", AttributeProto.FLOAT),
    "value_floats": ("float32", AttributeProto.FLOATS),
    "value_int": ("int64", AttributeProto.INT),
    "value_ints": ("int64", AttributeProto.INTS),
}
"""Attribute of Constant that holds plain numbers -> the format of the numbers, and the attribute's own type."""
_TYPES = ("to", "output_dtype", "softmax_precision", "dtype", "output_datatype")
"""Attributes that name a number format."""


@dataclass(frozen=True)
class File:
    """The data that all parts of one model share."""

    where: str
    folder: Path | None
    opsets: Mapping[str, int]
    bodies: dict[str, Graph] = field(default_factory=dict)
    constants: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    """Initialisers that were read, by the place of their graph and their names: the inference of types keeps them."""


def read_graph(file: File, proto: onnx.GraphProto, outer: Mapping[str, Tensor], place: str) -> Graph:
    """Return one graph; *outer* are the tensors of the enclosing graphs."""
    if proto.sparse_initializer:
        raise UnsupportedError(f"{file.where}: {place} has sparse initialisers: write them as dense ones.")
    _refuse_bytes(file.where, proto)
    constants = _constants(file, proto, place)
    nodes = [node for node in proto.node if not _is_constant(node)]
    declared = {item.name: item for item in (*proto.value_info, *proto.output, *proto.input)}
    inputs = tuple(item.name for item in proto.input if item.name not in constants)
    outputs = tuple(item.name for item in proto.output)
    made_here = {name for node in nodes for name in node.output if name} | set(inputs)
    tensors = dict(constants) | {
        # sorted, because the order of a set of texts changes from process to process
        name: _value(file, name, declared.get(name))
        for name in sorted(made_here - constants.keys())
    }
    for name in (*(name for node in nodes for name in node.input if name), *outputs):
        if name not in tensors and name in outer:
            tensors[name] = outer[name]
    named = _names(nodes)
    # a graph's bodies are its own; all other parts of the file are shared
    file = replace(file, bodies={})
    made_nodes = tuple(
        _node(file, node, name, {**outer, **tensors}, place) for node, name in zip(nodes, named, strict=True)
    )
    for node in made_nodes:
        for name in node.captures:
            tensors.setdefault(name, outer[name] if name in outer else tensors[name])
        for name in node.outputs:
            tensors.setdefault(name, _value(file, name, None))
    return Graph(
        proto.name or place, made_nodes, tensors, inputs, outputs, {"opset": file.opsets[""]}, file.bodies, dynamic=True
    )


def _constants(file: File, proto: onnx.GraphProto, place: str) -> dict[str, Tensor]:
    """Return the constants of initialisers and Constant nodes."""
    found: dict[str, Tensor] = {}
    for tensor in proto.initializer:
        if tensor.name in found:
            raise FormatError(f"{file.where}: two initialisers are called {tensor.name!r}: rename one.")
        key = (place, tensor.name)
        if key not in file.constants:
            file.constants[key] = read_tensor(f"{file.where}: initialiser {tensor.name!r}", tensor, file.folder)
        found[tensor.name] = file.constants[key]
    for made in (_constant(file, node) for node in proto.node if _is_constant(node)):
        if made.name in found:
            raise FormatError(f"{file.where}: two constants are called {made.name!r}: rename one.")
        found[made.name] = made
    return found


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in DOMAINS


def _refuse_bytes(where: str, proto: onnx.GraphProto) -> None:
    """Refuse names that are not text: protobuf returns such bytes without an error."""
    nodes = ((node.name, node.op_type, node.domain, *node.input, *node.output) for node in proto.node)
    attributes = ((item.name, item.ref_attr_name) for node in proto.node for item in node.attribute)
    values = [
        (item.name,) for part in (proto.initializer, proto.input, proto.output, proto.value_info) for item in part
    ]
    for names in ((proto.name,), *nodes, *attributes, *values):
        for name in names:
            if not isinstance(name, str):
                raise FormatError(f"{where}: a name {name!r}: must be text in UTF-8.")


def _names(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Return a name for each node. A node without a name gets its operator's name and a free number."""
    given = Counter(node.name for node in nodes if node.name)
    taken, counts, found = set(given), Counter[str](), []
    for node in nodes:
        name = node.name
        # ONNX permits nodes without a name, and messages and maps of nodes need one
        while not name:
            candidate = f"{node.op_type}_{counts[node.op_type]}"
            counts[node.op_type] += 1
            name = "" if candidate in taken else candidate
        taken.add(name)
        found.append(name)
    return found


def _value(file: File, name: str, declared: onnx.ValueInfoProto | None) -> Tensor:
    """Return the tensor of a computed value; float32 if its type is unknown."""
    if declared is None or not declared.type.WhichOneof("value"):
        return Tensor(name, (), DTYPES["float32"], ranked=False)
    kind = declared.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedError(f"{file.where}: {name!r} is a {kind.removesuffix('_type')}: must be a tensor.")
    own = declared.type.tensor_type
    dtype = dtype_of(f"{file.where}: {name!r}", own.elem_type)
    if not own.HasField("shape"):
        return Tensor(name, (), dtype, ranked=False)
    sizes = tuple(int(dim.dim_value) if dim.HasField("dim_value") else FREE for dim in own.shape.dim)
    if any(size < FREE for size in sizes):
        raise FormatError(f"{file.where}: {name!r} has shape {list(sizes)}: no size may be negative.")
    if FREE not in sizes and math.prod(sizes) * dtype.bits > 8 * LARGEST:
        raise FormatError(
            f"{file.where}: {name!r} would have shape {list(sizes)} of {dtype}: more than {LARGEST} bytes."
        )
    return Tensor(name, sizes, dtype)


def _constant(file: File, node: onnx.NodeProto) -> Tensor:
    place = f"{file.where}: constant {node.output[0]!r}" if node.output else f"{file.where}: a Constant without output"
    if len(node.attribute) != 1 or len(node.output) != 1:
        raise FormatError(f"{place}: must have one attribute and one output.")
    attribute = node.attribute[0]
    if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
        return read_tensor(place, attribute.t, file.folder, node.output[0])
    kind, own = _SCALARS.get(attribute.name, ("", None))
    if attribute.type != own:
        raise UnsupportedError(f"{place}: attribute {attribute.name!r}: must be a dense tensor or plain numbers.")
    dtype = DTYPES[kind]
    data = torch.tensor(helper.get_attribute_value(attribute), dtype=getattr(torch, dtype.name))
    return Tensor(node.output[0], tuple(data.shape), dtype, data)


def _node(file: File, proto: onnx.NodeProto, name: str, seen: Mapping[str, Tensor], place: str) -> Node:
    domain = "" if proto.domain in DOMAINS else proto.domain
    op = proto.op_type if not domain else f"{domain}::{proto.op_type}"
    where = f"{file.where}: node {name!r} ({op})"
    extra: dict[str, object] = {}
    attrs: dict[str, AttrValue] = {}
    read: tuple[str, ...] = ()
    if domain not in file.opsets:
        raise FormatError(f"{where}: the model imports no opset of domain {domain!r}.")
    if not any(proto.output):
        raise FormatError(f"{where}: has no outputs.")
    if defs.has(proto.op_type, file.opsets[domain], domain):
        if not domain:
            _refuse_older(where, op, file.opsets[""])
        schema = defs.get_schema(proto.op_type, file.opsets[domain], domain)
        # the version of the operator, by which its kernel is chosen, and not that of the model
        extra["since"] = schema.since_version
        for key, known in schema.attributes.items():
            if known.default_value.name:
                attrs[key] = _attribute(where, key, known.default_value)
    for item in proto.attribute:
        key = item.name
        if item.type == AttributeProto.TENSOR:
            extra[key] = read_tensor(f"{where}: attribute {key!r}", item.t, file.folder)
        elif item.type == AttributeProto.GRAPH:
            own = f"{name}/{key}"
            file.bodies[own] = body = read_graph(file, item.g, seen, f"{place}/{own}")
            attrs[key] = own
            read += _captured(body, seen)
        else:
            attrs[key] = _attribute(where, key, item)
    if any(item.key == ON_CODES for item in proto.metadata_props):
        extra[ON_CODES] = True
    inputs, outputs = _trimmed(proto.input), _trimmed(proto.output)
    # an output that is left out needs a name here, which no tensor of the file can have by chance
    made = tuple(item or f"{name}#{i}" for i, item in enumerate(outputs))
    return Node(
        name, op, tuple(item or None for item in inputs), made, attrs, extra=extra, captures=tuple(dict.fromkeys(read))
    )


def _trimmed(names: Iterable[str]) -> list[str]:
    """Return *names* without the absent ones at the end."""
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return found


def _captured(body: Graph, seen: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the tensors that a body reads from around it."""
    own = {*body.inputs, *(name for node in body.nodes for name in node.outputs)}
    return tuple(name for name in body.tensors if name not in own and name in seen)


def _refuse_older(where: str, op: str, opset: int) -> None:
    """Refuse an operator of an opset older than the oldest supported one, unless it has not changed since."""
    if opset < OLDEST and (
        not defs.has(op, OLDEST)
        or defs.get_schema(op, OLDEST).since_version != defs.get_schema(op, opset).since_version
    ):
        raise UnsupportedError(f"{where}: of opset {opset}, changed since: must be of opset {OLDEST} or later.")


def _attribute(where: str, key: str, proto: onnx.AttributeProto) -> AttrValue:
    if proto.ref_attr_name:
        raise FormatError(f"{where}: attribute {key!r} refers to {proto.ref_attr_name!r} outside of a function.")
    kinds = (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING, AttributeProto.FLOATS)
    if proto.type not in (*kinds, AttributeProto.INTS, AttributeProto.STRINGS):
        raise UnsupportedError(f"{where}: attribute {key!r}: must be numbers, text, a dense tensor or a graph.")
    value: Any = helper.get_attribute_value(proto)
    if key in _TYPES and isinstance(value, int):
        return _format(f"{where}: attribute {key!r}", value)
    try:
        return _plain(value)
    except UnicodeDecodeError:
        raise FormatError(f"{where}: attribute {key!r}: must be text in UTF-8.") from None


def _format(place: str, code: int) -> DType | int:
    return dtype_of(place, code) if code else 0


def _plain(value: Any) -> AttrValue:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str | int | float):
        return value
    return tuple(_plain(item) for item in value)
