"""From a module of Top operations to a graph of Top operators; each operation is checked against the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quantizer.core.dtypes import DTYPES
from quantizer.ir.formats.mlir_attrs import conform
from quantizer.ir.formats.mlir_module import Module, Operation, spelled
from quantizer.ir.formats.mlir_types import TensorType
from quantizer.ir.formats.top_ops import ABSENT, TOP_OPS, TopOp, count_problem
from quantizer.ir.graph import FREE, AttrValue, Graph, Node, Tensor, nearest

Load = Callable[[str, str, TensorType], Tensor]
"""Place, name and type of a weight -> the constant."""


@dataclass
class _Graph:
    """The graph under construction."""

    module: Module
    load: Load
    names: dict[str, str | None] = field(default_factory=dict)
    """Value of the text -> its tensor, None for `none`. Arguments are not included."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def graph_of(module: Module, load: Load) -> Graph:
    """Return the graph of *module*; FormatError with line and column of the first operation that is wrong."""
    made = _Graph(module, load)
    for operation in module.operations:
        _add(made, operation)
    outputs = [made.names.get(value) for value in module.returned]
    if not outputs or None in outputs:
        module.cursor.fail("return: must name at least one tensor, each the result of an operation", module.return_at)
    tensors = made.tensors.values()
    dynamic = any(not item.ranked or any(size in (FREE, 0) for size in item.shape) for item in tensors)
    names = tuple(str(name) for name in outputs)
    if len(made.inputs) != len(module.arguments):
        what = f"{len(module.arguments)} arguments, {len(made.inputs)} top.Input"
        module.cursor.fail(f"{what}: one reads each", module.return_at)
    return Graph(module.name, tuple(made.nodes), made.tensors, tuple(made.inputs), names, dynamic=dynamic)


def _add(made: _Graph, operation: Operation) -> None:
    cursor = made.module.cursor
    if operation.op not in TOP_OPS:
        hint = nearest(operation.op, TOP_OPS)
        cursor.fail(f"no operator {operation.op[:60]!r} of Top.{hint}".removesuffix("."), operation.at)
    op = TOP_OPS[operation.op]
    if op.name == "top.None":
        if operation.types != (None,) or operation.operands:
            cursor.fail("top.None: takes nothing and gives none", operation.at)
        made.names[operation.results[0]] = None
        return
    if op.name == "top.Input":
        _check_input(made, operation)
    elif any(value not in made.names for value in operation.operands):
        cursor.fail(f"{op.name}: an argument is read by its top.Input alone", operation.at)
    _check_counts(made, op, operation)
    attrs = _attributes(made, op, operation)
    names = _names(made, operation)
    for result, name, type_ in zip(operation.results, names, operation.types, strict=True):
        if name in made.tensors:
            what = f"{op.name}: there is a tensor {name[:60]!r} already: every one needs a location of its own"
            cursor.fail(what, operation.at)
        made.tensors[name] = _tensor(made, operation, name, type_)
        made.names[result] = None if type_ is None else name
    _add_node(made, operation, attrs, names)


def _check_input(made: _Graph, operation: Operation) -> None:
    fits = operation.operands == tuple(made.module.arguments[len(made.inputs) :][:1])
    if not fits or spelled(operation.types[0]) != spelled(operation.operand_types[0]):
        what = "top.Input: must read the function's next argument and give its type"
        made.module.cursor.fail(what, operation.at)


def _check_counts(made: _Graph, op: TopOp, operation: Operation) -> None:
    kinds = (("operands", op.operands, operation.operand_types), ("results", op.results, operation.types))
    for what, wanted, types in kinds:
        problem = count_problem(wanted, len(types), [type_ is None for type_ in types])
        if problem:
            made.module.cursor.fail(f"{op.name}: {len(types)} {what}: {problem}", operation.at)


def _attributes(made: _Graph, op: TopOp, operation: Operation) -> dict[str, AttrValue]:
    cursor = made.module.cursor
    for key, literal in operation.attrs.items():
        if key not in op.attributes:
            hint = nearest(key, op.attributes)
            cursor.fail(f"{op.name}: no attribute {key[:60]!r}.{hint}".removesuffix("."), literal.at)
    for key, attribute in op.attributes.items():
        if attribute.required and key not in operation.attrs:
            cursor.fail(f"{op.name}: attribute {key!r} is missing", operation.at)
    return {
        key: conform(cursor, f"{op.name}: attribute {key!r}", op.attributes[key], literal)
        for key, literal in operation.attrs.items()
    }


def _names(made: _Graph, operation: Operation) -> tuple[str, ...]:
    """Return a name for each result: from the location for tensors, generated for `none`."""
    wanted = sum(type_ is not None for type_ in operation.types)
    if len(operation.names) != wanted or not wanted:
        need = f"its location names {len(operation.names)} tensors, it makes {wanted}"
        made.module.cursor.fail(f'{operation.op}: {need}: write loc("x") or loc(fused["x", "y"])', operation.at)
    given = iter(operation.names)
    absent = f"{operation.names[0]}{ABSENT}"
    return tuple(next(given) if type_ is not None else f"{absent}{i}" for i, type_ in enumerate(operation.types))


def _tensor(made: _Graph, operation: Operation, name: str, type_: TensorType | None) -> Tensor:
    if type_ is None:
        return Tensor(name, (), DTYPES["float32"])
    if operation.op != "top.Weight":
        return type_.tensor(name)
    if operation.attrs:
        what = f"top.Weight {name[:60]!r}: has {', '.join(operation.attrs)[:60]}: only numbers of the archive are read"
        made.module.cursor.fail(what, operation.at)
    place = str(made.module.cursor.error("", operation.at)).removesuffix(": .")
    return made.load(f"{place}: weight {name[:60]!r}", name, type_)


def _add_node(made: _Graph, operation: Operation, attrs: dict[str, AttrValue], names: tuple[str, ...]) -> None:
    if operation.op == "top.Weight":
        return
    if operation.op == "top.Input":
        made.inputs.append(names[0])
        # a plain input needs no node; one with preprocessing keeps its attributes in a node
        if attrs not in ({}, {"do_preprocess": False}):
            made.nodes.append(Node(names[0], operation.op, (), names, attrs))
        return
    present = [name for name, type_ in zip(names, operation.types, strict=True) if type_ is not None]
    reads = tuple(made.names[value] for value in operation.operands)
    made.nodes.append(Node(present[0], operation.op, reads, names, attrs))
