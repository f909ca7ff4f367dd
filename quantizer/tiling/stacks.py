"""Stacks of data sets: axes along which outputs are independent, and the part of operands that each data set uses."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quantizer.core.case import Case, DataRecipe, Stack, TilePlan
from quantizer.core.errors import CaseError, QuantizerError
from quantizer.core.shapes import Shape, channel_axis, infer_shapes, variables
from quantizer.core.spec import NoTiling, Spec
from quantizer.tiling.windows import Box, part, tileable_axes

Shapes = Mapping[str, Shape]
Sizes = tuple[tuple[str, Shape], ...]
Values = tuple[tuple[str, Any], ...]
"""Shapes and attributes as keys of caches, because many cases have one structure."""


def independent_axes(spec: Spec, shapes: Shapes, attrs: Mapping[str, Any]) -> dict[str, int]:
    """Return the axes along which outputs are independent, with their sizes, in the order of the tiling rules."""
    if isinstance(spec.tiling, NoTiling):
        return {}
    rules = spec.tiling
    axes = tileable_axes(spec, shapes, attrs)
    return {name: size for name, size in axes.items() if (rules.get(name) or rules["*"]).rule == "independent"}


def cut_along(spec: Spec, shapes: Shapes, attrs: Mapping[str, Any], axis: str) -> dict[str, int]:
    """Return operand -> axis, for every operand that is cut when the output is cut along the independent *axis*.

    Raises CaseError if outputs along *axis* depend on each other, or an operand is not as long there as the output.
    """
    return dict(_cut_along(spec, tuple(shapes.items()), tuple(attrs.items()), axis))


@functools.lru_cache(maxsize=4096)
def _cut_along(spec: Spec, sizes: Sizes, values: Values, axis: str) -> Mapping[str, int]:
    shapes, attrs = dict(sizes), dict(values)
    size = independent_axes(spec, shapes, attrs).get(axis)
    if size is None:
        raise CaseError(
            f"data.stack.axis: {axis!r} is not an axis of {spec.op} along which outputs do not depend on each other."
        )
    # asks for one element more than there is, so that the end changes in every operand that is cut
    longer = part(spec, shapes, attrs, {axis: (0, size + 1)})
    found = {}
    for name, box in longer.inputs.items():
        places = [i for i, ((_, stop), own) in enumerate(zip(box, shapes[name], strict=True)) if stop != own]
        if any(shapes[name][i] != size for i in places) or len(places) > 1:
            raise CaseError(f"data.stack.axis: {axis!r} of operand {name!r} is not that of the output.")
        if places:
            found[name] = places[0]
    return found


def with_size(shapes: Shapes, places: Mapping[str, int], size: int) -> dict[str, Shape]:
    """Return *shapes* with the size *size* along each operand's axis in *places*."""
    return {
        name: shape if name not in places else (*shape[: places[name]], size, *shape[places[name] + 1 :])
        for name, shape in shapes.items()
    }


def stacked_shapes(
    spec: Spec, shapes: Shapes, attrs: Mapping[str, Any], axis: str, count: int
) -> dict[str, Shape] | None:
    """Return the shapes of *count* data sets one after another along *axis*; None if that is not a legal case.

    The axis must cut only activations, must not be the channel axis, and the output must grow only along it.
    """
    found = _stacked_shapes(spec, tuple(shapes.items()), tuple(attrs.items()), axis, count)
    return None if found is None else dict(found)


@functools.lru_cache(maxsize=4096)
def _stacked_shapes(spec: Spec, sizes: Sizes, values: Values, axis: str, count: int) -> Mapping[str, Shape] | None:
    shapes, attrs = dict(sizes), dict(values)
    try:
        places = cut_along(spec, shapes, attrs, axis)
        if not places or any(spec.inputs[name].role != "activation" for name in places):
            return None
        (before,) = infer_shapes(spec, shapes, attrs).values()
        size = independent_axes(spec, shapes, attrs)[axis]
        grown = with_size(shapes, places, size * count)
        (after,) = infer_shapes(spec, grown, attrs).values()
        own = [i for i, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
        channels = channel_axis(spec, variables(spec, grown, attrs), len(after))
        legal = len(own) == 1 and after[own[0]] == size * count and own[0] != channels
        # the longer case must be cut in the same places
        legal = legal and independent_axes(spec, grown, attrs).get(axis) == size * count
        return grown if legal and cut_along(spec, grown, attrs, axis) == places else None
    except (QuantizerError, ValueError):
        return None


@dataclass(frozen=True)
class Part:
    """One data set of a stack."""

    case: Case
    """The part as a case of its own."""
    output: Box
    inputs: dict[str, Box]


def parts(spec: Spec, case: Case) -> Iterator[Part]:
    """Yield the parts of a stack, each as a case of its own, with the stack's constants and its axis untiled.

    Raises CaseError if the case is not a stack along its axis.
    """
    return (part_at(spec, case, place) for place in range(len(sizes_of_parts(spec, case))))


def part_at(spec: Spec, case: Case, place: int) -> Part:
    """Return part number *place* of a stack as a case of its own, with its place in the operands and the output."""
    stack = _stack_of(case)
    shapes, output, inputs = _boxes_of(spec, case)[place]
    kept = TilePlan({name: tile for name, tile in case.tiles.sizes.items() if name != stack.axis})
    alone = case.but(shapes=shapes, data=_alone(case.data, stack.axis, stack.parts[place]), tiles=kept)
    return Part(alone, output, dict(inputs))


def sizes_of_parts(spec: Spec, case: Case) -> tuple[Shapes, ...]:
    """Return the shapes of each part of a stack."""
    return tuple(shapes for shapes, _, _ in _boxes_of(spec, case)[: len(_stack_of(case).parts)])


def _stack_of(case: Case) -> Stack:
    stack = case.data.stack
    assert stack is not None
    return stack


def _boxes_of(spec: Spec, case: Case) -> tuple[tuple[Shapes, Box, Mapping[str, Box]], ...]:
    stack = _stack_of(case)
    return _boxes(spec, tuple(case.shapes.items()), tuple(case.attrs.items()), stack.axis, len(stack.parts))


@functools.lru_cache(maxsize=1024)
def _boxes(
    spec: Spec, sizes: Sizes, values: Values, axis: str, count: int
) -> tuple[tuple[Shapes, Box, Mapping[str, Box]], ...]:
    """Return the shapes of each of *count* parts, and its place in the output and in the operands."""
    shapes, attrs = dict(sizes), dict(values)
    places = cut_along(spec, shapes, attrs, axis)
    size = independent_axes(spec, shapes, attrs)[axis]
    # rounded up; the last part may be shorter
    each = -(-size // count)
    ends = [(start, min(start + each, size)) for start in range(0, size, each)] if each else []
    if not ends:
        return ()
    first = part(spec, shapes, attrs, {axis: ends[0]})
    whole = part(spec, shapes, attrs, {}).output
    place = next((i for i, (one, other) in enumerate(zip(first.output, whole, strict=True)) if one != other), None)
    found = []
    for end in ends:  # if outputs are independent, a part has the same place in the operands as in the output
        output = first.output if place is None else _moved(first.output, place, end)
        inputs = {n: _moved(box, places[n], end) if n in places else box for n, box in first.inputs.items()}
        found.append((with_size(shapes, places, end[1] - end[0]), output, inputs))
    return tuple(found)


def _moved(box: Box, axis: int, end: tuple[int, int]) -> Box:
    return (*box[:axis], end, *box[axis + 1 :])


def _alone(data: DataRecipe, axis: str, own: tuple[str, int]) -> DataRecipe:
    """Return the recipe of one part; a plain recipe if the constants have the same one."""
    return DataRecipe(data.set, data.seed, stack=None if own == (data.set, data.seed) else Stack(axis, (own,)))
