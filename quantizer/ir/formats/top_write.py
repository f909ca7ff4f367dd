"""From a graph in Top's vocabulary to the lines of its module and the arrays of its weights, always the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from quantizer.core.errors import UnsupportedError
from quantizer.ir.formats.mlir_attrs import attribute_text, string_text
from quantizer.ir.formats.mlir_types import type_text
from quantizer.ir.formats.top_ops import ABSENT, STRUCTURE, TOP_OPS, TopOp, Value, count_problem
from quantizer.ir.graph import Graph, Node, Tensor, nearest

State = Literal["TOP_F32", "TOP_QUANTIZED"]
STATES: tuple[State, ...] = ("TOP_F32", "TOP_QUANTIZED")
HALVES = ("float16", "bfloat16")
"""Number formats whose bits are stored as uint16 in the archive of weights, as TpuLang stores them."""
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_FILE = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Array = np.ndarray[Any, Any]


@dataclass
class Lines:
    """The body of the function under construction, and the names of its values."""

    graph: Graph
    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    """Tensor -> `%3`."""
    weights: dict[str, Array] = field(default_factory=dict)
    """Constants in the order of their first use."""
    count: int = 0
    none: str = ""


def weight_file(name: str, state: State) -> str:
    """Return the name of the archive with the weights of the module *name*, in lower case as TpuLang writes it."""
    return f"{name}_{state}_all_origin_weight.npz".lower()


def module_text(graph: Graph, name: str, state: State) -> tuple[str, dict[str, Array]]:
    """Return the module of *graph* and the arrays of its weights; UnsupportedError if the text cannot express it."""
    if state not in STATES:
        raise UnsupportedError(f"state {state!r}: must be one of {', '.join(STATES)}.")
    if not _FILE.fullmatch(name) or name in (".", ".."):
        raise UnsupportedError(
            f"name {name[:60]!r}: must be a file's name of 1 to 200 characters, without '/' or '\\'."
        )
    _refuse_graph(graph)
    body = Lines(graph)
    operators = [node for node in graph.order if node.op != "top.Input"]
    if any(item is None for node in operators for item in node.inputs):
        body.none = _new(body, ["none"])
        body.lines.append(f'{body.none} = "top.None"() : () -> none loc(unknown)')
    _inputs(body)
    for node in operators:
        _operator(body, node)
    return _frame(body, name, state), body.weights


def _refuse_graph(graph: Graph) -> None:
    where = f"graph {graph.name!r}"
    if graph.subgraphs or graph.extra:
        what = "bodies of control flow" if graph.subgraphs else f"{', '.join(map(repr, graph.extra))} in its header"
        raise UnsupportedError(f"{where}: has {what}, which a Top module does not hold.")
    for node in graph.nodes:
        place = f"node {node.name!r}"
        if node.op not in TOP_OPS or node.op in STRUCTURE - {"top.Input"}:
            raise UnsupportedError(f"{place}: no operator {node.op!r} of Top.{nearest(node.op, TOP_OPS)}")
        kept = node.extra or node.parameters or node.transposed or node.captures or node.activation != "none"
        if kept or node.order != "channels_first":
            raise UnsupportedError(f"{place}: carries more than Top's attributes: give it as Top names it.")
        present = [made for i, made in enumerate(node.outputs) if made != f"{node.name}{ABSENT}{i}"]
        if not present or present[0] != node.name:
            raise UnsupportedError(f"{place}: must be called as its first output: {(present or ['none'])[0]!r}.")


def _new(body: Lines, types: Sequence[str]) -> str:
    name = f"%{body.count}"
    body.count += 1
    return name if len(types) == 1 else f"{name}:{len(types)}"


def _name(place: str, name: str) -> str:
    if not name or _CONTROL.search(name):
        raise UnsupportedError(f"{place} {name!r}: a name must not be empty or hold control characters.")
    try:
        return string_text(name)
    except ValueError:
        raise UnsupportedError(f"{place} {name!r}: a name must be Unicode text.") from None


def _inputs(body: Lines) -> None:
    graph = body.graph
    told = {node.name: node for node in graph.nodes if node.op == "top.Input"}
    for index, name in enumerate(graph.inputs):
        node, of = told.pop(name, None), type_text(graph.tensor(name))
        attrs = "do_preprocess = false" if node is None else _attributes(node, TOP_OPS["top.Input"])
        body.values[name] = value = _new(body, [of])
        loc = _name("input", name)
        body.lines.append(f'{value} = "top.Input"(%arg{index}) {{{attrs}}} : ({of}) -> {of} loc({loc})')
    for name in told:
        raise UnsupportedError(f"node {name!r} (top.Input): makes no input of the graph: list it among the inputs.")


def _operator(body: Lines, node: Node) -> None:
    op = TOP_OPS[node.op]
    _check_count(node, "inputs", op.operands, len(node.inputs), [item is None for item in node.inputs])
    absent = [made == f"{node.name}{ABSENT}{i}" for i, made in enumerate(node.outputs)]
    _check_count(node, "outputs", op.results, len(node.outputs), absent)
    operands = [body.none if item is None else _read(body, item) for item in node.inputs]
    types = ["none" if item is None else type_text(body.graph.tensor(item)) for item in node.inputs]
    made = [
        "none" if gone else type_text(body.graph.tensor(name)) for name, gone in zip(node.outputs, absent, strict=True)
    ]
    value = _new(body, made)
    # %3:2 defines two values, which are used as %3#0 and %3#1
    base, several = value.partition(":")[0], len(made) > 1
    body.values |= {name: f"{base}#{i}" if several else base for i, name in enumerate(node.outputs)}
    names = [_name("tensor", name) for name, gone in zip(node.outputs, absent, strict=True) if not gone]
    loc = names[0] if len(names) == 1 else f"fused[{', '.join(names)}]"
    attrs = _attributes(node, op)
    shown = f" {{{attrs}}}" if attrs else ""
    results = f"({', '.join(made)})" if several else made[0]
    text = f'{value} = "{node.op}"({", ".join(operands)}){shown} : ({", ".join(types)}) -> {results} loc({loc})'
    body.lines.append(text)


def _check_count(node: Node, what: str, wanted: Sequence[Value], count: int, absent: Sequence[bool]) -> None:
    problem = count_problem(wanted, count, absent)
    if problem:
        raise UnsupportedError(f"node {node.name!r} ({node.op}): {count} {what}: {problem}.")


def _read(body: Lines, name: str) -> str:
    """Return the value of tensor *name*; a constant becomes a weight at its first use."""
    tensor = body.graph.tensor(name)
    if name not in body.values:
        # a weight is defined right before the first operation that reads it
        body.weights[name] = weight_array(tensor)
        body.values[name] = _new(body, [""])
        text = f'{body.values[name]} = "top.Weight"() : () -> {type_text(tensor)} loc({_name("tensor", name)})'
        body.lines.append(text)
    return body.values[name]


def weight_array(tensor: Tensor) -> Array:
    """Return the numbers of a constant as the archive keeps them."""
    assert tensor.data is not None
    data = tensor.data.detach().cpu().contiguous()
    if tensor.dtype.name in HALVES:
        import torch

        return np.asarray(data.view(torch.int16).numpy().view(np.uint16))
    return np.asarray(data.numpy())


def _attributes(node: Node, op: TopOp) -> str:
    place = f"node {node.name!r} ({node.op})"
    for key in node.attrs:
        if key not in op.attributes:
            raise UnsupportedError(f"{place}: no attribute {key!r}.{nearest(key, op.attributes)}")
    for key, attribute in op.attributes.items():
        if attribute.required and key not in node.attrs:
            raise UnsupportedError(f"{place}: attribute {key!r} is missing.")
    pairs = [
        f"{key} = {attribute_text(f'{place}: attribute {key!r}', op.attributes[key], node.attrs[key])}"
        # MLIR sorts the attributes of an operation by name
        for key in sorted(node.attrs)
    ]
    return ", ".join(pairs)


def _frame(body: Lines, name: str, state: State) -> str:
    graph = body.graph
    header = {
        "chip": "ALL",
        "platform": "TPULANG",
        "state": state,
        "top_run_mode": "STATIC",
        "weight_file": weight_file(name, state),
    }
    told = ", ".join(f"module.{key} = {_name('name', value)}" for key, value in header.items())
    arguments = ", ".join(
        f"%arg{i}: {type_text(graph.tensor(item))} loc(unknown)" for i, item in enumerate(graph.inputs)
    )
    symbol = name if _BARE.fullmatch(name) else _name("name", name)
    values = [_read(body, item) for item in graph.outputs]
    types = [type_text(graph.tensor(item)) for item in graph.outputs]
    results = types[0] if len(types) == 1 else f"({', '.join(types)})"
    body.lines.append(f"return {', '.join(values)} : {', '.join(types)} loc(unknown)")
    return "".join(f"{line}\n" for line in _module(symbol, told, arguments, results, body.lines))


def _module(symbol: str, told: str, arguments: str, results: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"module @{symbol} attributes {{{told}}} {{"
    yield f"  func.func @main({arguments}) -> {results} {{"
    yield from (f"    {line}" for line in lines)
    yield "  } loc(unknown)"
    yield "} loc(unknown)"
