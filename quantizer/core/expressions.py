"""The expression language of specs: a small subset of Python, parsed once, bounded in size, never passed to eval."""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quantizer.core import shape_functions
from quantizer.core.errors import SpecError

MAX_LENGTH = 400  # a spec is data of others: its expressions must not exhaust time or memory
MAX_NODES = 120
MAX_MAGNITUDE = 1 << 62

Value = Any
"""The value of an expression: a number, a truth value, a text or a tuple of sizes."""
Run = Callable[[Mapping[str, Any]], Value]
# a whitelist, so that Python's parser never sees backslashes, braces or @
_FOREIGN = re.compile(r"[^A-Za-z0-9_ \n.,:()\[\]+\-*/%<>=!'\"]")
_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
# Python would read 1if as 1 if, with a warning; possessive quantifiers keep the search linear in the text
_GLUED = re.compile(r"(?:(?<![A-Za-z0-9_.])[0-9][0-9.]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+[A-Za-z_]")
_NAME = re.compile(r"[a-z][a-z0-9_]*")

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "broadcast": shape_functions.broadcast,
    "broadcasts": shape_functions.broadcasts,
    "ceil_div": lambda a, b: -(-a // b),
    "drop": shape_functions.drop,
    "kept_axis": shape_functions.kept_axis,
    "len": len,
    "max": max,
    "min": min,
    "padded": shape_functions.padded,
    "permute": shape_functions.permute,
    "prod": math.prod,
    "reduce": shape_functions.reduce,
    "repeated": shape_functions.repeated,
    "replace": shape_functions.replace,
    "sliced": shape_functions.sliced,
    "sum": sum,
    "take": shape_functions.take,
    "windows": shape_functions.windows,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression; equal when its text is equal."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Variables that the expression reads."""
        return frozenset(_variables(self.tree))

    @functools.cached_property
    def run(self) -> Run:
        """The expression as a function of its variables.

        Unlike `__call__`, it lets errors pass that are not SpecError.
        """
        return _compile(self.tree)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed on demand: another process cannot be given the functions of `run`."""
        return {"text": self.text, "tree": self.tree}

    def __call__(self, variables: Mapping[str, Any]) -> Value:
        """Return the value; SpecError for an unknown name or an operation without a result."""
        try:
            return self.run(variables)
        except SpecError:
            raise
        except KeyError as err:
            known = ", ".join(sorted(variables)) or "none"
            raise SpecError(
                f"expression {self.text!r}: name {err.args[0]!r} has no value here; known: {known}."
            ) from None
        except (ArithmeticError, IndexError, TypeError, ValueError) as err:
            raise SpecError(f"expression {self.text!r}: {err}.") from None

    @functools.cached_property
    def settled(self) -> bool | None:
        """The constant truth value; None if it depends on variables."""
        return _settled(self.tree)


def parse_axes(text: str) -> Expression:
    """Parse "*name", the axes of the shape *name*; SpecError if no name follows the asterisk."""
    inner = parse(text[1:])
    if not isinstance(inner.tree, ast.Name):
        raise SpecError(f"expression {text!r}: * must precede the name of a shape, as in *batch.")
    return Expression(text, inner.tree)


@functools.lru_cache(maxsize=1 << 14)
def parse(text: str) -> Expression:
    """Parse *text*; SpecError names the first construct that the language does not have."""
    if len(text) > MAX_LENGTH:
        raise SpecError(f"expression of {len(text)} characters: at most {MAX_LENGTH} are read.")
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    if found := _FOREIGN.search(text):
        raise SpecError(f"expression {shown!r}: character {found[0]!r} is not part of the language of specs.")
    if found := _GLUED.search(_TEXT.sub("''", text)):
        raise SpecError(f"expression {shown!r}: {found[0]!r} is neither a number nor a name.")
    try:
        tree = ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        reason = err.msg if isinstance(err, SyntaxError) else "nested too deeply"
        raise SpecError(f"expression {shown!r}: {reason}.") from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise SpecError(f"expression {shown!r}: {len(nodes)} parts; at most {MAX_NODES} are read.")
    compared = {id(text) for node in nodes for text in _compared_texts(node)}
    # the name of a function is legal only where it is called, and is checked there
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if id(node) not in called and (problem := _problem(node, compared)):
            raise SpecError(f"expression {shown!r}: {problem}.")
    return Expression(text.strip(), tree)


_ALLOWED = (
    ast.Load,
    ast.BinOp,
    ast.UnaryOp,
    ast.USub,
    ast.Not,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.Compare,
    ast.IfExp,
    ast.Subscript,
    ast.Tuple,
    ast.List,
)


def _compared_texts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the parts of a comparison that may be texts: both sides, and the entries of lists on either side."""
    if isinstance(node, ast.Compare):
        for side in (node.left, *node.comparators):
            yield from side.elts if isinstance(side, ast.Tuple | ast.List) else [side]


def _problem(node: ast.AST, compared: set[int]) -> str:
    """Return the reason why *node* is not part of the language, or None."""
    if isinstance(node, ast.Constant):
        return _constant_problem(node.value, is_compared=id(node) in compared)
    if isinstance(node, ast.Name):
        if node.id in FUNCTIONS:
            return f"{node.id} is a function. Call it, as in {node.id}(x)"
        return "" if _NAME.fullmatch(node.id) else f"{node.id!r} is not a name; names are snake_case"
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords:
            return ""
        return f"only these functions can be called: {', '.join(FUNCTIONS)}"
    if isinstance(node, ast.operator):
        return "" if type(node) in _BINARY else "the operators are + - * / // % and comparisons"
    if isinstance(node, ast.cmpop):
        return "" if type(node) in _COMPARE else "the comparisons are == != < <= > >= in, not in"
    if isinstance(node, ast.Slice):
        return "a slice has no step" if node.step else ""
    return "" if isinstance(node, _ALLOWED) else f"{type(node).__name__} is not part of the language of specs"


def _constant_problem(value: object, *, is_compared: bool) -> str:
    if isinstance(value, str):
        return "" if is_compared else f"the text {value!r} can only be compared"
    # bool is an int in Python: True and False pass here
    if not isinstance(value, int | float):
        return f"{value!r} is not a number, true, false or a text"
    if abs(value) > MAX_MAGNITUDE:
        return "a number leaves +-2**62"
    return ""


def _variables(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in FUNCTIONS and node.id not in _LITERALS:
            yield node.id


_LITERALS = {"true": True, "false": False}


def _bounded(value: Value) -> Value:
    # almost every value: one test instead of four
    if type(value) is int and -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        return value
    if isinstance(value, int):
        if abs(value) > MAX_MAGNITUDE:
            raise ValueError(f"a value leaves +-2**62 ({value.bit_length()} bits)")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a value is not a finite number")
    elif isinstance(value, str | tuple | list) and len(value) > MAX_LENGTH:
        raise ValueError(f"a value has {len(value)} elements; at most {MAX_LENGTH}")
    return value


def _compile(node: ast.AST) -> Run:  # noqa: C901 - one case a construct
    """Return *node* as a closure; walking the tree at every call takes four times as long."""
    match node:
        case ast.Constant(value=value):
            return lambda _: value
        case ast.Name(id=name) if name in _LITERALS:
            return lambda _: _LITERALS[name]
        case ast.Name(id=name):
            # YAML gives lists; tuples compare with each other and can be added
            return lambda variables: tuple(v) if type(v := variables[name]) is list else v
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(_BINARY[type(op)], _compile(left), _compile(right))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand)
            return lambda variables: not inner(variables)
        case ast.UnaryOp(operand=operand):
            inner = _compile(operand)
            return lambda variables: -inner(variables)
        case ast.BoolOp(op=op, values=values):
            parts = [_compile(value) for value in values]
            if isinstance(op, ast.Or):
                return _any_of(parts)
            return _all_of(parts)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _comparison(
                _compile(left), [(_COMPARE[type(o)], _compile(c)) for o, c in zip(ops, comparators, strict=True)]
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, then, otherwise = _compile(test), _compile(body), _compile(orelse)
            return lambda variables: then(variables) if condition(variables) else otherwise(variables)
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper)):
            whole = _compile(value)
            first, last = (_compile(end) if end else (lambda _: None) for end in (lower, upper))
            return lambda variables: whole(variables)[first(variables) : last(variables)]
        case ast.Subscript(value=value, slice=index):
            whole, at = _compile(value), _compile(index)
            return lambda variables: whole(variables)[at(variables)]
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            items = [_compile(item) for item in elts]
            return lambda variables: tuple([item(variables) for item in items])
        case ast.Call(func=ast.Name(id=name), args=args):
            function, arguments = FUNCTIONS[name], [_compile(arg) for arg in args]
            return lambda variables: _bounded(function(*[argument(variables) for argument in arguments]))
    raise AssertionError(f"{type(node).__name__} passed the check; please report this.")


def _any_of(parts: list[Run]) -> Run:
    def run(variables: Mapping[str, Any]) -> bool:
        for part in parts:  # noqa: SIM110 - a generator takes twice as long
            if part(variables):
                return True
        return False

    return run


def _all_of(parts: list[Run]) -> Run:
    def run(variables: Mapping[str, Any]) -> bool:
        for part in parts:  # noqa: SIM110 - as above
            if not part(variables):
                return False
        return True

    return run


def _arithmetic(function: Callable[[Any, Any], Any], left: Run, right: Run) -> Run:
    def run(variables: Mapping[str, Any]) -> Value:
        a, b = left(variables), right(variables)
        # first, because almost all operands are integers
        if type(a) is int and type(b) is int:
            return _bounded(function(a, b))
        if not (isinstance(a, int | float) and isinstance(b, int | float)) and not (
            function is operator.add and isinstance(a, tuple) and isinstance(b, tuple)
        ):
            raise TypeError(f"only numbers can be computed with, got {a!r} and {b!r}")
        return _bounded(function(a, b))

    return run


def _comparison(left: Run, rest: list[tuple[Callable[[Any, Any], bool], Run]]) -> Run:
    if len(rest) == 1:
        compare, right = rest[0]
        return lambda variables: compare(left(variables), right(variables))

    def run(variables: Mapping[str, Any]) -> bool:
        a = left(variables)
        for compare, right in rest:
            b = right(variables)
            if not compare(a, b):
                return False
            a = b
        return True

    return run


def _settled(node: ast.AST) -> bool | None:
    if not any(_variables(node)):
        try:
            return bool(_compile(node)({}))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            return None
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _settled(operand)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            found = {_settled(value) for value in values}
            # one true part decides an `or`, one false part an `and`, whatever the others are
            wins = isinstance(op, ast.Or)
            return wins if wins in found else None if None in found else not wins
        # both sides are the same expression
        case ast.Compare(left=left, ops=[op], comparators=[right]) if ast.dump(left) == ast.dump(right):
            return isinstance(op, ast.Eq | ast.LtE | ast.GtE)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, branches = _settled(test), (_settled(body), _settled(orelse))
            if condition is not None:
                return branches[0] if condition else branches[1]
            return branches[0] if branches[0] == branches[1] else None
    return None
