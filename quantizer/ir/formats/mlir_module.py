"""The text of an MLIR module with one straight-line function, in which each value is defined and typed once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quantizer.ir.formats.mlir_attrs import Literal, read_dictionary
from quantizer.ir.formats.mlir_text import MAX_DEPTH, Cursor
from quantizer.ir.formats.mlir_types import TensorType, Types
from quantizer.ir.graph import nearest

Type = TensorType | None
"""The type of a value; None: `none`."""
_ALIAS = re.compile(r"^#loc[0-9]*[ \t]*=", re.MULTILINE)


@dataclass(frozen=True)
class Operation:
    """One operation as written: values by name, names of its location."""

    op: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    attrs: Mapping[str, Literal]
    operand_types: tuple[Type, ...]
    types: tuple[Type, ...]
    names: tuple[str, ...]
    at: int


@dataclass
class Module:
    """A parsed module: its attributes, the function's arguments, its operations, and the returned values."""

    cursor: Cursor
    name: str = ""
    header: dict[str, Literal] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    returned: tuple[str, ...] = ()
    return_at: int = 0
    values: dict[str, Type] = field(default_factory=dict)
    types: Types = field(default_factory=Types)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def strings(self) -> dict[str, str]:
        """Return the texts of the module's own attributes, without their `module.`."""
        pairs = ((key.removeprefix("module."), literal) for key, literal in self.header.items())
        return {key: str(literal.value) for key, literal in pairs if literal.type == "string"}


def parse_module(text: str, path: str) -> Module:
    """Return the module of *text*; FormatError with path, line and column if it is not a module."""
    module = Module(Cursor(path, text))
    _read_aliases(module)
    cursor = module.cursor
    _skip_aliases(module)
    cursor.expect("module")
    if cursor.token.kind == "symbol":
        token = cursor.next()
        module.name = cursor.label(token) if '"' in token.text else token.text[1:]
    if cursor.skip("attributes"):
        module.header = read_dictionary(cursor)
    module.name = module.name or module.strings().get("name", "")
    cursor.expect("{")
    _function(module)
    cursor.expect("}")
    _location(module)
    _skip_aliases(module)
    if cursor.token.kind != "end":
        cursor.fail(f"{cursor.shown()} after the end of the module")
    return module


def _read_aliases(module: Module) -> None:
    """Read every location alias first: MLIR prints them after the module that uses them."""
    for found in _ALIAS.finditer(module.cursor.text):
        # a second cursor on the same text, so that errors have the right place; it knows the aliases before this one
        scout = Module(Cursor(module.cursor.name, module.cursor.text, found.start()), aliases=module.aliases)
        name, names = _alias(scout)
        if name in module.aliases:
            scout.cursor.fail(f"location {name} is defined twice", found.start())
        module.aliases[name] = names


def _skip_aliases(module: Module) -> None:
    while module.cursor.token.kind == "alias":
        _alias(module)


def _alias(module: Module) -> tuple[str, tuple[str, ...]]:
    name = module.cursor.next().text
    module.cursor.expect("=")
    return name, _location(module)


def _function(module: Module) -> None:
    cursor = module.cursor
    cursor.expect("func.func")
    cursor.expect_kind("symbol", "the function's name, @main")
    cursor.expect("(")
    while cursor.token.kind == "value":
        token = cursor.next()
        cursor.expect(":")
        _define(module, token.text, module.types.read(cursor), token.at)
        module.arguments.append(token.text)
        _location(module)
        if not cursor.skip(","):
            break
    cursor.expect(")")
    produced = _type_list(module) if cursor.skip("->") else ()
    if cursor.skip("attributes"):
        read_dictionary(cursor)
    cursor.expect("{")
    while not (cursor.at("return") or cursor.at("func.return")):
        module.operations.append(_operation(module))
    _return(module, produced)
    cursor.expect("}")
    _location(module)


def _type_list(module: Module) -> tuple[Type, ...]:
    """Return `type` or `(type, ...)`."""
    cursor = module.cursor
    if not cursor.skip("("):
        return (module.types.read(cursor),)
    found: list[Type] = []
    while not cursor.at(")"):
        found.append(module.types.read(cursor))
        if not cursor.skip(","):
            break
    cursor.expect(")")
    return tuple(found)


def _define(module: Module, name: str, type_: Type, at: int) -> None:
    if name in module.values:
        module.cursor.fail(f"value {name} is defined twice", at)
    module.values[name] = type_


def _uses(module: Module) -> tuple[str, ...]:
    """Read a list of used values at the cursor, such as `%3, %5#1`."""
    cursor = module.cursor
    found: list[str] = []
    while cursor.token.kind == "value":
        token = cursor.next()
        name = token.text + (cursor.next().text if cursor.token.kind == "result" else "")
        if name not in module.values:
            hint = nearest(name, module.values)
            cursor.fail(f"value {name[:60]} is not defined before this.{hint}".removesuffix("."), token.at)
        found.append(name)
        if not cursor.skip(","):
            break
    return tuple(found)


def _operation(module: Module) -> Operation:
    cursor = module.cursor
    at = cursor.token.at
    results = _results(cursor)
    token = cursor.expect_kind("string", 'an operation such as "top.Conv"(...)')
    op = cursor.label(token)
    cursor.expect("(")
    operands = _uses(module)
    cursor.expect(")")
    attrs = _read_attributes(cursor)
    cursor.expect(":")
    types_at = cursor.token.at
    if not cursor.at("("):
        cursor.fail(f"must be the operands' types in parentheses, got {cursor.shown()}")
    types = _type_list(module)
    _same_types(module, op, operands, types, types_at)
    cursor.expect("->")
    made = _type_list(module)
    if len(made) != len(results):
        cursor.fail(f"{op[:60]}: {len(results)} results are named, {len(made)} have a type", at)
    for name, type_ in zip(results, made, strict=True):
        _define(module, name, type_, at)
    return Operation(op, results, operands, attrs, types, made, _location(module), token.at)


def _read_attributes(cursor: Cursor) -> dict[str, Literal]:
    """Return the properties `<{...}>` and attributes `{...}` of an operation."""
    attrs: dict[str, Literal] = {}
    if cursor.skip("<"):
        attrs = read_dictionary(cursor)
        cursor.expect(">")
    if cursor.at("{"):
        for name, literal in read_dictionary(cursor).items():
            if name in attrs:
                cursor.fail(f"attribute {name!r} occurs twice", literal.at)
            attrs[name] = literal
    return attrs


def _results(cursor: Cursor) -> tuple[str, ...]:
    token = cursor.expect_kind("value", "a value and '=', or return")
    results: tuple[str, ...] = (token.text,)
    if cursor.skip(":"):
        count = cursor.expect_kind("int", "the number of results")
        if not count.text.isdigit() or len(count.text) > 4:
            cursor.fail(f"{count.text[:20]} results: at most 9999", count.at)
        # `%3:2` names two results, which are read as %3#0 and %3#1
        results = tuple(f"{token.text}#{i}" for i in range(int(count.text)))
    while cursor.skip(","):
        results += (cursor.expect_kind("value", "a value").text,)
    cursor.expect("=")
    return results


def _same_types(module: Module, what: str, values: Sequence[str], types: Sequence[Type], at: int) -> None:
    if len(types) != len(values):
        module.cursor.fail(f"{what[:60]}: {len(values)} values, {len(types)} types", at)
    for name, type_ in zip(values, types, strict=True):
        if spelled(module.values[name]) != spelled(type_):
            held, said = spelled(module.values[name])[:80], spelled(type_)[:80]
            module.cursor.fail(f"{what[:60]}: value {name[:40]} is {held}, its type here {said}", at)


def spelled(type_: Type) -> str:
    """Return a type as this package writes it; `none` for an absent operand."""
    return "none" if type_ is None else type_.text


def _location(module: Module) -> tuple[str, ...]:
    """Return the names in the location at the cursor; none if there is no location."""
    cursor = module.cursor
    if not cursor.skip("loc"):
        return ()
    cursor.expect("(")
    names = _located(module, 0)
    cursor.expect(")")
    return names


def _located(module: Module, depth: int) -> tuple[str, ...]:
    cursor = module.cursor
    token = cursor.token
    if depth > MAX_DEPTH:
        cursor.fail(f"locations are nested deeper than {MAX_DEPTH}")
    if cursor.skip("unknown"):
        return ()
    if token.kind == "alias":
        cursor.next()
        if token.text not in module.aliases:
            cursor.fail(f"location {token.text[:60]} is not defined", token.at)
        return module.aliases[token.text]
    if token.kind == "string":
        name = cursor.label(cursor.next())
        if cursor.at(":"):
            cursor.fail('a place in a file names no tensor: write loc("x")', token.at)
        if cursor.skip("("):
            # "x"(...): a place inside the parentheses names no tensor
            _located(module, depth + 1)
            cursor.expect(")")
        return (name,)
    if not cursor.skip("fused"):
        cursor.fail(f'must be a location, "x", fused["x", "y"] or unknown, got {cursor.shown()}')
    cursor.expect("[")
    names: list[str] = []
    while not cursor.at("]"):
        names += _located(module, depth + 1)
        if not cursor.skip(","):
            break
    cursor.expect("]")
    return tuple(names)


def _return(module: Module, produced: Sequence[Type]) -> None:
    cursor = module.cursor
    module.return_at = cursor.next().at
    module.returned = _uses(module)
    cursor.expect(":")
    types = [module.types.read(cursor)]
    while cursor.skip(","):
        types.append(module.types.read(cursor))
    _same_types(module, "return", module.returned, types, module.return_at)
    _same_types(module, "return, held against the function", module.returned, produced, module.return_at)
    _location(module)
