"""Quantized graphs in other clothes: the same numbers through bodies, functions, shared constants, and names of all kinds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Change = Callable[[onnx.ModelProto, random.Random], None]


def dressed(model: onnx.ModelProto, seed: int) -> tuple[onnx.ModelProto, list[str]]:
    """Return *model* after one to three changes that keep its results, and their names."""
    source, made = random.Random(seed), onnx.ModelProto()
    made.CopyFrom(model)
    chosen = source.sample(CHANGES, source.randint(1, 3))
    chosen.sort(key=CHANGES.index)  # bodies last: the other changes do not look into them
    for change in chosen:
        change(made, source)
    return made, [change.__name__ for change in chosen]


def renamed(model: onnx.ModelProto, source: random.Random) -> None:
    """Give inner tensors names with dots, slashes, spaces and letters beyond ASCII."""
    tail = source.choice(["/a.b", "::0", " ü", "#codes"])
    kept = {"", *(value.name for value in (*model.graph.input, *model.graph.output))}
    for tensor in model.graph.initializer:
        tensor.name += "" if tensor.name in kept else tail
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [name if name in kept else name + tail for name in names]


def shared(model: onnx.ModelProto, source: random.Random) -> None:  # noqa: ARG001 - as every change
    """Let equal constants be one."""
    first: dict[bytes, str] = {}
    same: dict[str, str] = {}
    for tensor in list(model.graph.initializer):
        plain = onnx.TensorProto()
        plain.CopyFrom(tensor)
        plain.ClearField("name")
        same[tensor.name] = first.setdefault(plain.SerializeToString(), tensor.name)
        if same[tensor.name] != tensor.name:
            model.graph.initializer.remove(tensor)
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]


def made_by_nodes(model: onnx.ModelProto, source: random.Random) -> None:
    """Make half of the constants by a Constant."""
    for tensor in list(model.graph.initializer):
        if source.random() < 0.5:
            model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
            model.graph.initializer.remove(tensor)


def defaults(model: onnx.ModelProto, source: random.Random) -> None:
    """Make half of the constants inputs with a default value."""
    for tensor in model.graph.initializer:
        if source.random() < 0.5:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            model.graph.input.append(value)


def through_identities(model: onnx.ModelProto, source: random.Random) -> None:
    """Let a quarter of all operands pass an Identity."""
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name and source.random() < 0.25:
                copy = f"{name}_same{len(nodes)}"
                nodes.append(helper.make_node("Identity", [name], [copy]))
                node.input[place] = copy
        nodes.append(node)
    _set(model, nodes)


@dataclass(frozen=True)
class Part:
    """Consecutive nodes: the nodes before and after them, and which of their results are read later."""

    before: list[NodeProto]
    nodes: list[NodeProto]
    after: list[NodeProto]
    results: list[str]

    def renamed(self, tail: str) -> list[NodeProto]:
        """Return the nodes with other names of what they make."""
        made = {name for node in self.nodes for name in node.output}
        found = []
        for node in self.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            for names in (copy.input, copy.output):
                names[:] = [name + tail if name in made else name for name in names]
            copy.name += tail if copy.name else ""
            found.append(copy)
        return found


def _has_body(node: NodeProto) -> bool:
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def _part(model: onnx.ModelProto, source: random.Random) -> Part:
    nodes = list(model.graph.node)
    plain = [place for place, node in enumerate(nodes) if node.op_type != "Constant" and not _has_body(node)]
    start = source.choice(plain)
    end = start + 1
    while end in plain and end < start + source.randint(1, 4):
        end += 1
    read = {name for node in nodes[end:] for name in node.input} | {value.name for value in model.graph.output}
    results = [name for node in nodes[start:end] for name in node.output if name in read]
    return Part(nodes[:start], nodes[start:end], nodes[end:], results)


def _body(part: Part, name: str) -> onnx.GraphProto:
    results = [onnx.ValueInfoProto(name=f"{result}_{name}") for result in part.results]
    return helper.make_graph(part.renamed(f"_{name}"), name, [], results)


def in_branches(model: onnx.ModelProto, source: random.Random) -> None:
    """Put nodes into both branches of an If, whose condition is known or computed."""
    part, name = _part(model, source), f"if{source.randrange(10**6)}"
    if source.random() < 0.5:
        before = [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(True)))]
    else:
        fed = model.graph.input[0].name
        before = [
            helper.make_node("ReduceMax", [fed], [f"{name}_top"], keepdims=0),
            helper.make_node("IsNaN", [f"{name}_top"], [name]),
        ]
    branches = {f"{key}_branch": _body(part, f"{name}_{key}") for key in ("then", "else")}
    node = helper.make_node("If", [name], part.results, name=f"{name}_node", **branches)
    _set(model, [*part.before, *before, node, *part.after])


def in_a_loop(model: onnx.ModelProto, source: random.Random) -> None:
    """Put nodes into a loop of one or two iterations that collects their results."""
    part, name = _part(model, source), f"loop{source.randrange(10**6)}"
    numbers = {"rounds": np.array(source.choice([1, 2])), "going": np.array(True), "first": np.array(0)}
    before = [
        helper.make_node("Constant", [], [f"{name}_{key}"], value=numpy_helper.from_array(value))
        for key, value in numbers.items()
    ]
    body = _body(part, name)
    body.input.append(helper.make_tensor_value_info(f"{name}_round", TensorProto.INT64, []))
    body.input.append(helper.make_tensor_value_info(f"{name}_more", TensorProto.BOOL, []))
    body.node.append(helper.make_node("Identity", [f"{name}_more"], [f"{name}_still"]))
    body.output.insert(0, helper.make_tensor_value_info(f"{name}_still", TensorProto.BOOL, []))
    all_rounds = [f"{result}_{name}_all" for result in part.results]
    node = helper.make_node("Loop", [f"{name}_rounds", f"{name}_going"], all_rounds, name=name, body=body)
    after = [
        helper.make_node("Gather", [rounds, f"{name}_first"], [result], axis=0)
        for rounds, result in zip(all_rounds, part.results, strict=True)
    ]
    _set(model, [*part.before, *before, node, *after, *part.after])


def in_a_function(model: onnx.ModelProto, source: random.Random) -> None:
    """Put nodes into a function of the model."""
    part, name = _part(model, source), f"function{source.randrange(10**6)}"
    made = {result for node in part.nodes for result in node.output}
    read = list(dict.fromkeys(i for node in part.nodes for i in node.input if i and i not in made))
    model.functions.append(
        helper.make_function("local", name, read, part.results, part.nodes, list(model.opset_import))
    )
    if not any(opset.domain == "local" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("local", 1))
    call = helper.make_node(name, read, part.results, name=f"{name}_call", domain="local")
    _set(model, [*part.before, call, *part.after])


def _set(model: onnx.ModelProto, nodes: list[NodeProto]) -> None:
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)


CHANGES: list[Change] = [
    renamed,
    shared,
    made_by_nodes,
    defaults,
    through_identities,
    in_branches,
    in_a_loop,
    in_a_function,
]
