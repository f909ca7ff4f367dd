"""Refuses models that crash ONNX's shape inference: reads past a list, divisions by zero, unbounded memory.

A convolution whose operand and weight differ in rank, blocks of 2**32 places, and strides of 0 end the process: neither
the checker nor the inference refuses them. If shape inference follows the values of a vector, each element
costs 40 bytes. Found by fuzzing onnx 1.21.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from onnx import TensorProto, defs, helper

from quantizer.core.errors import FormatError
from quantizer.ir.formats.onnx_graph import DOMAINS

CONVOLUTIONS = ("Conv", "ConvTranspose")
BLOCKS = ("DepthToSpace", "SpaceToDepth")
LARGEST_BLOCK = (1 << 31) - 1
"""The largest blocksize: the inference squares it in 64 bits and divides by the square."""
SMALL = 64
"""A constant of up to this many elements may be a shape, whose values the inference follows."""
SHAPES = {"ConstantOfShape": 0, "Reshape": 1, "Expand": 1, "Tile": 1}
"""Operator -> the operand with one number for each axis of the result that the inference creates."""
LONGEST_VECTOR = 1 << 16
"""The values of a vector of up to this many elements may be followed; a shape has some dozens."""
REPEATS = "#repeats"
"""The name of unknown numbers: how often a stand-in repeats its operand along each axis."""
Ranks = dict[str, int]


def refuse_fatal(model: onnx.ModelProto, where: str) -> bool:
    """Raise FormatError for a model that would end the process while its shapes are inferred.

    Return whether the inference may follow the values of vectors (`data_prop`): not if one is known to be too long.

    The ranks of convolutions come from ONNX's inference of a model without data. In that model, each convolution is
    replaced by a node whose result has the weight's rank and unknown sizes. If all ranks agree there, they are correct
    for the model.
    """
    nodes = list(_nodes(model.graph))
    longest = _lengths(model.graph)
    for node in nodes:
        place = SHAPES.get(node.op_type)
        count = 0 if place is None or len(node.input) <= place else longest.get(node.input[place], 0)
        if count > LONGEST_VECTOR:
            raise FormatError(
                f"{where}: {node.input[place or 0]!r} has {count} elements: no tensor has so many axes{_label(node)}."
            )
        for item in node.attribute:
            if item.name == "strides" and any(step < 1 for step in item.ints):
                raise FormatError(f"{where}: strides={list(item.ints)}: must be at least 1{_label(node)}.")
            if item.name == "num_outputs" and item.i != len(node.output):
                raise FormatError(f"{where}: num_outputs={item.i}: has {len(node.output)} outputs{_label(node)}.")
            if node.op_type in BLOCKS and item.name == "blocksize" and not 1 <= item.i <= LARGEST_BLOCK:
                raise FormatError(f"{where}: blocksize={item.i}: must be from 1 to {LARGEST_BLOCK}{_label(node)}.")
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    light.graph.CopyFrom(_without_data(model.graph))
    # a vector of unknown length: the inference then knows the rank of a Tile's result from its operand alone
    light.graph.input.append(helper.make_tensor_value_info(REPEATS, TensorProto.INT64, [None]))
    _stand_in(light.graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=False)
    # For the model itself, the library's C++ code raises the same errors with a reason.
    except Exception:  # noqa: BLE001
        return False
    short = all(size <= LONGEST_VECTOR for size in _vectors(inferred.graph))
    if any(node.op_type in CONVOLUTIONS for node in nodes):
        # with values followed, more ranks are known, such as that of a Reshape to a computed shape
        followed = onnx.shape_inference.infer_shapes(light, data_prop=True) if short else inferred
        _check_ranks(model.graph, followed.graph, {}, where)
    return short


def say_defaults(graph: onnx.GraphProto, version: int) -> None:
    """Write out attributes that a node leaves at their default, for operators that ONNX defines as functions.

    The inference enters the function's body, and there treats such an attribute as missing.
    """
    for node in graph.node:
        for item in node.attribute:
            if item.type == onnx.AttributeProto.GRAPH:
                say_defaults(item.g, version)
        if node.domain not in DOMAINS or not defs.has(node.op_type, version):
            continue
        known = defs.get_schema(node.op_type, version)
        given = {item.name for item in node.attribute}
        if known.has_function:
            node.attribute.extend(
                item.default_value
                for name, item in known.attributes.items()
                if item.default_value.name and name not in given
            )


def _lengths(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the declared length of each vector."""
    found = {item.name: item.dims[0] for item in graph.initializer if len(item.dims) == 1}
    for item in graph.input:
        if len(item.type.tensor_type.shape.dim) == 1:
            found[item.name] = item.type.tensor_type.shape.dim[0].dim_value
    return found


def _vectors(graph: onnx.GraphProto) -> Iterator[int]:
    """Yield the known length of every vector, also in bodies."""
    for item in (*graph.input, *graph.value_info, *graph.output):
        if len(item.type.tensor_type.shape.dim) == 1:
            yield item.type.tensor_type.shape.dim[0].dim_value
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _vectors(attribute.g)


def _label(node: onnx.NodeProto) -> str:
    return f" (node {node.name!r}, {node.op_type})"


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield ONNX's own nodes, also those of bodies."""
    for node in graph.node:
        if node.domain in DOMAINS:
            yield node
        for item in node.attribute:
            if item.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(item.g)


def _without_data(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return a copy with each large constant replaced by an input of the same shape."""
    small = [item for item in graph.initializer if math.prod(item.dims) <= SMALL and not item.external_data]
    named = {item.name for item in (*small, *graph.input)}
    large = [
        helper.make_tensor_value_info(item.name, item.data_type, list(item.dims))
        for item in graph.initializer
        if item.name not in named
    ]
    return onnx.GraphProto(
        name=graph.name, node=graph.node, initializer=small, input=[*graph.input, *large], output=graph.output
    )


def _stand_in(graph: onnx.GraphProto) -> None:
    """Replace each convolution by a node whose result has the weight's rank.

    The model cannot run, but its ranks can be inferred.
    """
    for node in graph.node:
        for item in node.attribute:
            if item.type == onnx.AttributeProto.GRAPH:
                _stand_in(item.g)
        if node.op_type in CONVOLUTIONS and node.domain in DOMAINS and len(node.input) > 1:
            node.CopyFrom(helper.make_node("Tile", [node.input[1], REPEATS], list(node.output)))


def _check_ranks(graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Ranks, where: str) -> None:
    ranks = outer | {item.name: len(item.dims) for item in inferred.initializer}
    for item in (*inferred.input, *inferred.value_info, *inferred.output):
        if item.type.tensor_type.HasField("shape"):
            ranks[item.name] = len(item.type.tensor_type.shape.dim)
    # stand-ins replaced nodes one by one, so both lists have the same places
    for node, seen in zip(graph.node, inferred.node, strict=True):
        for item, other in zip(node.attribute, seen.attribute, strict=False):
            if item.type == onnx.AttributeProto.GRAPH:
                _check_ranks(item.g, other.g, ranks, where)
        if node.op_type not in CONVOLUTIONS or node.domain not in DOMAINS or len(node.input) < 2:
            continue
        first, second = (ranks.get(name) for name in node.input[:2])
        if first is not None and second is not None and first != second:
            raise FormatError(
                f"{where}: types or shapes contradict each other: {node.input[0]!r} has {first} axes and the weight "
                f"{node.input[1]!r} has {second}: the numbers must be equal{_label(node)}."
            )
