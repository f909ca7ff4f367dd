"""Expressions over real numbers. They state the computation of a declared stage, in float64, intervals or rationals."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from quantizer.core.errors import SpecError

V = TypeVar("V")
MAX_LENGTH = 400
MAX_NODES = 80
MAX_MAGNITUDE = 1 << 62
OF_ONE = ("abs", "erf", "exp", "gelu", "log", "relu", "sigmoid", "silu", "sqrt", "square", "tanh")
"""Functions of one operand."""
OF_TWO = ("max", "min")
"""Functions of two operands."""
FOLDS = ("greatest", "mean", "sum")
"""Functions along an axis, which stays with size 1: `mean(x, -1)`."""
OF_NUMBERS = ("abs", "sqrt")
"""Functions of one operand that a scale may use."""
WORDS = frozenset((*OF_ONE, *OF_TWO, *FOLDS))
_SIGNS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


@dataclass(frozen=True)
class RealExpression:
    """A parsed expression; equal when its text is equal."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Operands, stages, dimensions and attributes that the expression reads."""
        nodes = ast.walk(self.tree)
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and node.id not in WORDS)

    @functools.cached_property
    def functions(self) -> frozenset[str]:
        """Functions that the expression calls."""
        calls = (node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return frozenset(function.id for function in calls if isinstance(function, ast.Name))

    @property
    def is_rational(self) -> bool:
        """Whether it uses only + - * /."""
        return not self.functions


@dataclass(frozen=True)
class Algebra(Generic[V]):
    """The operations with which an expression is evaluated."""

    number: Callable[[float], V]
    """The value of a constant."""
    join: Mapping[str, Callable[[V, V], V]]
    """Operator sign or name of a function of two operands -> its implementation."""
    apply: Callable[[str, V], V]
    """(function of one operand, operand) -> its value."""
    fold: Callable[[str, V, int], V]
    """(fold, operand, axis) -> its value."""


def parse_real(text: str) -> RealExpression:
    """Parse *text*; SpecError names the first part that the language of stages does not have."""
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    if len(text) > MAX_LENGTH:
        raise SpecError(f"expression of {len(text)} characters: at most {MAX_LENGTH} are read.")
    try:
        tree = ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        reason = err.msg if isinstance(err, SyntaxError) else "nested too deeply"
        raise SpecError(f"expression {shown!r}: {reason}.") from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise SpecError(f"expression {shown!r}: {len(nodes)} parts; at most {MAX_NODES} are read.")
    if problem := _problem(tree):
        raise SpecError(f"expression {shown!r}: {problem}.")
    return RealExpression(text.strip(), tree)


def evaluate(
    expression: RealExpression, names: Mapping[str, V], numbers: Mapping[str, float], algebra: Algebra[V]
) -> V:
    """Return the value of *expression*; *names*: operands and stages, *numbers*: dimensions and attributes."""
    return _value(expression.tree, names, numbers, algebra)


def evaluate_number(expression: RealExpression, numbers: Mapping[str, float]) -> float:
    """Return the value of an expression over *numbers* in float64; SpecError if it has no value."""
    try:
        return evaluate(expression, {}, numbers, _FLOAT64)
    except (ArithmeticError, ValueError) as err:
        raise SpecError(f"expression {expression.text!r}: {err}.") from None


def _problem(node: ast.expr) -> str:
    """Return the reason why *node* is not part of the language, or None."""
    match node:
        case ast.Constant(value=value):
            is_number = type(value) in (int, float) and abs(value) <= MAX_MAGNITUDE  # type: ignore[arg-type]
            return "" if is_number else f"{value!r} is not a number within +-2**62"
        case ast.Name(id=name):
            return f"{name} is a function. Call it, as in {name}(x)" if name in WORDS else ""
        case ast.BinOp(left=left, op=op, right=right):
            return ("" if type(op) in _SIGNS else "the operators are + - * /") or _problem(left) or _problem(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _problem(operand)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in WORDS:
            wanted = 1 if name in OF_ONE else 2
            if len(args) != wanted:
                return f"{name} takes {wanted} operand{'s' if wanted > 1 else ''}, got {len(args)}"
            if name in FOLDS and not _is_axis(args[1]):
                return f"{name}: the axis must be a whole number or an attribute, as in {name}(x, -1)"
            return next(filter(None, map(_problem, args)), "")
        case ast.Call():
            return f"only these functions can be called: {', '.join(sorted(WORDS))}"
    return f"{type(node).__name__} is not part of the language of stages"


def _is_axis(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Name) or (isinstance(inner, ast.Constant) and type(inner.value) is int)


def _value(node: ast.expr, names: Mapping[str, V], numbers: Mapping[str, float], algebra: Algebra[V]) -> V:
    def inner(part: ast.expr) -> V:
        return _value(part, names, numbers, algebra)

    match node:
        case ast.Constant(value=int() | float() as value):
            return algebra.number(value)
        case ast.Name(id=name):
            return names[name] if name in names else algebra.number(numbers[name])
        case ast.BinOp(left=left, op=op, right=right):
            return algebra.join[_SIGNS[type(op)]](inner(left), inner(right))
        case ast.UnaryOp(operand=operand):
            # 0 - x, so that an algebra needs no negation of its own
            return algebra.join["-"](algebra.number(0), inner(operand))
        case ast.Call(func=ast.Name(id=name), args=[operand, axis]) if name in FOLDS:
            # the axis is a plain number in every algebra
            return algebra.fold(name, inner(operand), int(_value(axis, {}, numbers, _FLOAT64)))
        case ast.Call(func=ast.Name(id=name), args=[first, second]):
            return algebra.join[name](inner(first), inner(second))
        case ast.Call(func=ast.Name(id=name), args=[operand]):
            return algebra.apply(name, inner(operand))
    raise AssertionError(f"{type(node).__name__} passed the check; please report this.")


def _number_of(name: str, value: float) -> float:
    return abs(value) if name == "abs" else math.sqrt(value)


def _no_fold(name: str, value: float, axis: int) -> float:
    raise ValueError(f"{name} along axis {axis} of the number {value}")


_FLOAT64: Algebra[float] = Algebra(
    float,
    {"+": float.__add__, "-": float.__sub__, "*": float.__mul__, "/": float.__truediv__, "max": max, "min": min},
    _number_of,
    _no_fold,
)
