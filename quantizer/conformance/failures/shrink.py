"""Shrinks a failing case to the smallest one that still fails: structure first, then data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from quantizer.conformance.failures.fewest import Budget, fewest
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.target import Target
from quantizer.core.case import Case, TilePlan
from quantizer.core.domains import ENTRY, draw_order, fits
from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import evaluate, infer_shapes, variables
from quantizer.core.spec import Domain
from quantizer.tiling.stacks import parts
from quantizer.tiling.windows import tileable_axes

Fails = Callable[[Case], bool]
MAX_RUNS = 400
MAX_KEPT = 2048
"""The most elements that a stored case lists. A longer list is not easier to read than the full data."""


def shrink(target: Target, case: Case, fails: Fails, *, runs: int = MAX_RUNS) -> Case:
    """Return a case no larger than *case* for which *fails* still holds, with at most *runs* calls of it.

    The order is tiles, axis order, optional operands, dimensions and attributes towards their simplest values, and then
    the data: elements are set to zero by halves (ddmin) while the case still fails.
    """
    budget = Budget(fails, runs)
    changed = True
    while changed and budget.left > 0:
        changed = False
        # after each success from the beginning, because a smaller structure may allow earlier steps again
        for smaller in _simpler(target, case):
            if budget(smaller):
                case, changed = smaller, True
                break
    return _fewer_values(target, case, budget)


def _simpler(target: Target, case: Case) -> Iterator[Case]:
    if len(case.data.sets) > 1:
        yield from (piece.case for piece in parts(target.spec, case))
        yield case.but(data=replace(case.data, stack=None))
    if case.tiles.sizes:
        yield case.but(tiles=TilePlan({}))
        for axis in case.tiles.sizes:
            if len(case.tiles.sizes) > 1:
                yield case.but(tiles=TilePlan({k: v for k, v in case.tiles.sizes.items() if k != axis}))
    if case.activation != "none":
        yield case.but(activation="none")
    if case.order != "channels_first":
        yield case.but(order="channels_first")
    for name, item in target.spec.inputs.items():
        needed = any(target.spec.inputs[other].needs == name for other in case.shapes)
        if item.optional and name in case.shapes and not needed:
            yield case.but(
                shapes={k: v for k, v in case.shapes.items() if k != name},
                ranges={k: v for k, v in case.ranges.items() if k != name},
            )
    bound = variables(target.spec, case.shapes, case.attrs)
    # later dimensions depend on earlier ones, so they can change alone
    for name in reversed(draw_order(target.spec)):
        for value in _smaller_values(target, name, bound):
            changed = _with_value(target, case, bound, name, value)
            if changed is not None:
                yield changed


def _smaller_values(target: Target, name: str, bound: Mapping[str, Any]) -> Iterator[Any]:
    domain = target.spec.dims.get(name) or target.spec.attrs[name]
    value = bound.get(name)
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        if value is True:
            yield False
        return
    if isinstance(value, int):
        least = int(domain.min(bound)) if domain.min is not None else 0
        simplest = domain.default if isinstance(domain.default, int) else 1
        # large steps first; one less at the end, so that no size stays that could be smaller
        for candidate in dict.fromkeys((simplest, 1, value // 2, value - 1)):
            if least <= candidate and abs(candidate) < abs(value):
                yield candidate
        return
    if domain.type == "shape":
        yield from _smaller_shapes(value)
        return
    if domain.type == "axes":
        yield from ((*value[:i], *value[i + 1 :]) for i in range(len(value)) if len(value) > 1)
    lowest = tuple(_least(domain, bound, i) for i in range(len(value)))
    default: tuple[Any, ...] = tuple(domain.default) if isinstance(domain.default, list) else lowest
    if value != default:
        yield default
    for i, item in enumerate(value):
        for candidate in dict.fromkeys((default[i], item - 1)):
            if lowest[i] <= candidate < item:
                yield (*value[:i], candidate, *value[i + 1 :])


def _least(domain: Domain, bound: Mapping[str, Any], entry: int) -> int:
    """Return the smallest value of a list's entry; 0 if it may be negative, which is an index from the front."""
    return 0 if domain.min is None else max(0, int(domain.min({**bound, ENTRY: entry})))


def _smaller_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for i, size in enumerate(shape):
        if size == 1 and len(shape) > 1:
            yield (*shape[:i], *shape[i + 1 :])
        for candidate in dict.fromkeys((1, size // 2, size - 1)):
            if 1 <= candidate < size:
                yield (*shape[:i], candidate, *shape[i + 1 :])


def _with_value(target: Target, case: Case, bound: Mapping[str, Any], name: str, value: Any) -> Case | None:
    """Return *case* with one dimension or attribute changed, and all that depends on it; None if that is illegal."""
    spec = target.spec
    values = {**bound, name: value}
    try:
        for other, domain in {**spec.dims, **spec.attrs}.items():
            if other == name:
                continue
            # a broadcast operand keeps its axes of 1 and takes over the other new sizes
            if domain.broadcasts_to == name:
                rank = len(values[other])
                values[other] = tuple(
                    1 if old == 1 else new
                    for old, new in zip(values[other][-len(value) :], value[-rank:], strict=False)
                )
            elif domain.product is not None and name in domain.product.names:
                values[other] = (int(domain.product(values)),)
            elif domain.sum is not None and domain.sum.names & {name}:
                values[other] = _resized(values[other], int(domain.sum(values)))
        shapes = {operand: evaluate(spec.inputs[operand].axes, values) for operand in case.shapes}
        attrs = {attr: values[attr] for attr in spec.attrs}
        if not all(fits(_plain(attrs[attr]), domain) for attr, domain in spec.attrs.items()):
            return None
        infer_shapes(spec, shapes, attrs)
        changed = case.but(shapes=shapes, attrs=attrs)
        axes = tileable_axes(spec, shapes, attrs)
        # a tile larger than its axis stays larger by one, which is a class of its own
        sizes = {axis: min(size, axes[axis] + 1) for axis, size in case.tiles.sizes.items() if axis in axes}
        return changed.but(tiles=TilePlan(sizes))
    except (QuantizerError, KeyError, IndexError, TypeError, ValueError):
        return None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _resized(sizes: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return parts of *total*: those of *sizes* that fit, and the remainder as the last part."""
    kept: list[int] = []
    for size in sizes:
        if sum(kept) + size < total and len(kept) < len(sizes) - 1:
            kept.append(size)
    return (*kept, total - sum(kept))


def _fewer_values(target: Target, case: Case, fails: Budget[Case]) -> Case:
    """Return *case* with as many elements set to zero as ddmin finds, tensor by tensor."""
    for name in case.shapes:
        values = materialise(target, case)[name]
        places = [tuple(int(i) for i in index) for index in values.nonzero().tolist()]
        kept = fewest(places, fails, functools.partial(_keeping, case, name))
        if len(kept) < int(values.count_nonzero()) and len(kept) <= MAX_KEPT:
            case = _keeping(case, name, kept)
    return case


def _keeping(case: Case, name: str, coordinates: list[tuple[int, ...]]) -> Case:
    recipe = case.data
    return case.but(data=replace(recipe, kept={**recipe.kept, name: tuple(coordinates)}))
