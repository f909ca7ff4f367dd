"""Shapes from a spec: binding its dimensions, checking its constraints, inferring its outputs."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.core.errors import ConstraintError, GraphError, SpecError
from quantizer.core.expressions import Expression
from quantizer.core.spec import Input, Spec

Shape = tuple[int, ...]


def variables(spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes and the dimensions that the input shapes bind.

    Raises GraphError for a missing operand or attribute, a wrong rank, or one name bound to two sizes.
    """
    plain = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in attrs.items())
    return dict(_variables(spec, tuple(shapes.items()), plain))


@functools.lru_cache(maxsize=4096)
def _variables(
    spec: Spec, sizes: tuple[tuple[str, Shape], ...], values: tuple[tuple[str, Any], ...]
) -> Mapping[str, Any]:
    shapes, attrs = dict(sizes), dict(values)
    bound: dict[str, Any] = {}
    for name, domain in spec.attrs.items():
        if name not in attrs and domain.default is None:
            raise GraphError(f"{spec.op}: attribute {name!r} is missing and has no default.")
        value = attrs.get(name, domain.default)
        bound[name] = tuple(value) if isinstance(value, list) else value
    if unknown := sorted(attrs.keys() - spec.attrs.keys()):
        raise GraphError(f"{spec.op}: attribute {unknown[0]!r} is not one of {', '.join(spec.attrs) or 'none'}.")
    if unknown := sorted(shapes.keys() - spec.inputs.keys()):
        raise GraphError(f"{spec.op}: operand {unknown[0]!r} is not one of {', '.join(spec.inputs)}.")
    for name, item in spec.inputs.items():
        if name not in shapes:
            if not item.optional:
                raise GraphError(f"{spec.op}: input {name!r} is missing.")
            continue
        if item.needs is not None and item.needs not in shapes:
            raise GraphError(f"{spec.op}: input {name!r} needs input {item.needs!r}, which is missing.")
        _bind(spec, name, shapes[name], bound)
    for name, item in spec.inputs.items():
        # expressions may use the shape of an operand that is absent: it is empty
        if name not in shapes and (symbol := plain_name(item.axes)) is not None and symbol in spec.dims:
            bound.setdefault(symbol, ())
    return bound


def _bind(spec: Spec, name: str, shape: Shape, bound: dict[str, Any]) -> None:
    axes = spec.inputs[name].axes
    if not isinstance(axes, list):
        if (symbol := plain_name(axes)) is not None:
            _bind_one(spec, name, symbol, tuple(shape), bound)
        return
    # None: too few axes, or too many without a leading "*name"
    places = named_axes(axes, len(shape))
    if places is None:
        wanted = f"{len(axes) - 1} axes or more" if spread_name(axes[0]) else f"{len(axes)} axes"
        raise GraphError(f"{spec.op}: input {name!r} has shape {list(shape)}; it must have {wanted}.")
    if (spread := spread_name(axes[0]) if axes else None) is not None and spread in spec.dims:
        _bind_one(spec, name, spread, tuple(shape[: len(shape) - len(axes) + 1]), bound)
    for place, axis in places.items():
        if (symbol := plain_name(axis)) is not None and symbol in spec.dims:
            _bind_one(spec, name, symbol, shape[place], bound)


def _bind_one(spec: Spec, name: str, symbol: str, value: Any, bound: dict[str, Any]) -> None:
    if bound.setdefault(symbol, value) != value:
        raise GraphError(f"{spec.op}: input {name!r} gives {symbol}={value}, another operand gives {bound[symbol]}.")


def channel_axis(spec: Spec, bound: Mapping[str, Any], rank: int) -> int | None:
    """Return the channel axis of the first output, which has that rank; None if it has no channel axis."""
    expression = next(iter(spec.outputs.values())).channel_axis
    return None if expression is None else int(expression(bound)) % rank


def named_axes(axes: Sequence[Expression], rank: int) -> dict[int, Expression] | None:
    """Return position -> expression of the axes listed one by one, for a tensor of *rank*; None if it has fewer axes.

    A name after a leading "*" is not among them.
    """
    spread = bool(axes) and spread_name(axes[0]) is not None
    listed = list(axes[1:] if spread else axes)
    if rank < len(listed) or (rank > len(listed) and not spread):
        return None
    return dict(enumerate(listed, rank - len(listed)))


def spread_name(axis: object) -> str | None:
    """Return the name in "*name", or None for other expressions."""
    return axis.text[1:] if isinstance(axis, Expression) and axis.text.startswith("*") else None


@functools.cache
def _plain(expression: Expression) -> str | None:
    is_name = isinstance(expression.tree, ast.Name) and not expression.text.startswith("*")
    return expression.text.strip() if is_name else None


def plain_name(expression: Any) -> str | None:
    """Return *expression* if it is only a name, else None."""
    return _plain(expression) if isinstance(expression, Expression) else None


def check(spec: Spec, bound: Mapping[str, Any]) -> None:
    """Raise ConstraintError for the first constraint that *bound* breaks, with the spec's own text."""
    for index, constraint in enumerate(spec.constraints):
        if not constraint.require(bound):
            shown = {k: list(v) if isinstance(v, tuple) else v for k, v in bound.items()}
            raise ConstraintError(spec.op, index, constraint.error.format_map(shown))


def infer_shapes(spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the shape of every output; GraphError or ConstraintError if the graph is not legal."""
    return dict(_inferred(spec, tuple(shapes.items()), tuple(attrs.items())))


def tensor_shapes(spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> tuple[Shape, ...]:
    """Return the shape of every tensor that a node makes: its outputs, or the pieces of an output.

    Raises GraphError or ConstraintError if the graph is not legal, or the pieces do not add up to the whole.
    """
    inferred = infer_shapes(spec, shapes, attrs)
    cut = next(iter(spec.outputs.values())).pieces
    if cut is None:
        return tuple(inferred.values())
    (whole,) = inferred.values()
    axis, sizes = cut_of(spec, variables(spec, shapes, attrs), len(whole))
    if sum(sizes) != whole[axis]:
        raise GraphError(f"{spec.op}: pieces of {list(sizes)} do not make up the {whole[axis]} of axis {axis}.")
    return tuple((*whole[:axis], size, *whole[axis + 1 :]) for size in sizes)


def cut_of(spec: Spec, bound: Mapping[str, Any], rank: int) -> tuple[int, tuple[int, ...]]:
    """Return the axis, counted from the front, along which the result comes in pieces, and their sizes."""
    cut = next(iter(spec.outputs.values())).pieces
    assert cut is not None
    return int(cut.axis(bound)) % rank, tuple(cut.sizes(bound))


@functools.lru_cache(maxsize=4096)
def _inferred(
    spec: Spec, shapes: tuple[tuple[str, Shape], ...], attrs: tuple[tuple[str, Any], ...]
) -> tuple[tuple[str, Shape], ...]:
    bound = variables(spec, dict(shapes), dict(attrs))
    check(spec, bound)
    for name, shape in shapes:
        _check_axes(spec, name, shape, bound)
    return tuple((name, evaluate(rule, bound)) for name, rule in spec.shape.items())


def _check_axes(spec: Spec, name: str, shape: Shape, bound: Mapping[str, Any]) -> None:
    try:
        wanted = evaluate(spec.inputs[name].axes, bound)
    except SpecError as err:
        raise GraphError(f"{spec.op}: shape of input {name!r}: {err}") from None
    if tuple(shape) != wanted:
        raise GraphError(f"{spec.op}: input {name!r} has shape {list(shape)}; it must be {list(wanted)}.")


def limits(item: Input, bound: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and the largest value where the operator is defined, as shapes and attributes give them."""
    low, high = item.domain or (-math.inf, math.inf)
    ends = [float(end(bound)) if isinstance(end, Expression) else end for end in (low, high)]
    return ends[0], ends[1]


def evaluate(rule: Any, bound: Mapping[str, Any]) -> Shape:
    """Return the shape that a list of expressions, or one expression for the whole shape, gives."""
    if not isinstance(rule, list):
        return tuple(rule(bound))
    sizes: list[int] = []
    for axis in rule:
        # "*name" stands for any number of axes
        if axis.text[0] == "*":
            sizes.extend(axis(bound))
        else:
            sizes.append(int(axis(bound)))
    return tuple(sizes)
