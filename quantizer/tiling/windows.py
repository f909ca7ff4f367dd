"""Input windows of output tiles, computed from the tile rules of the spec."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantizer.core.case import AttrValue, TilePlan
from quantizer.core.errors import SpecError, UnsupportedError
from quantizer.core.expressions import Expression
from quantizer.core.shapes import Shape, infer_shapes, named_axes, plain_name, variables
from quantizer.core.spec import NoTiling, Spec, TileRule

Box = tuple[tuple[int, int], ...]
"""(start, stop) per axis."""


@dataclass(frozen=True)
class Tile:
    """One tile: its box of the output, the boxes of the inputs that it reads, and its own attributes."""

    output: Box
    inputs: Mapping[str, Box]
    attrs: Mapping[str, AttrValue]
    part: int = 0
    """The number of this slice of a split reduction."""
    parts: int = 1


def tileable_axes(spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, Any]) -> dict[str, int]:
    """Return the axes that can be cut for these shapes, with their sizes; `d0`, `d1`... for the rule '*'."""
    return dict(_tileable(spec, tuple(shapes.items()), tuple(attrs.items())))


@functools.lru_cache(maxsize=4096)
def _tileable(
    spec: Spec, sizes: tuple[tuple[str, Shape], ...], values: tuple[tuple[str, Any], ...]
) -> Mapping[str, int]:
    if isinstance(spec.tiling, NoTiling):
        return {}
    shapes, attrs = dict(sizes), dict(values)
    bound = variables(spec, shapes, attrs)
    output = next(iter(infer_shapes(spec, shapes, attrs).values()))
    axes: dict[str, int] = {}
    for name, rule in spec.tiling.items():
        if name == "*":
            # an axis with a rule of its own is not numbered as well
            own = {i for i, axis in _output_places(spec, len(output)).items() if axis.names & spec.tiling.keys()}
            rest = [i for i in range(len(output)) if i not in own]
            axes |= {f"d{i}": output[i] for i in rest if _holds(rule.when, bound | {"i": i})}
        elif _holds(rule.when, bound):
            # a reduced axis is not an axis of the output
            axes[name] = (
                bound[str(rule.axis)] if rule.rule == "accumulate" else output[_output_axis(spec, name, len(output))]
            )
    return axes


def tiles(spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, AttrValue], plan: TilePlan) -> list[Tile]:
    """Return the tiles of *plan*, row-major over its axes; slices of a split reduction follow each other.

    UnsupportedError for an axis that the spec does not allow to be cut.
    """
    return [*_tiles(spec, tuple(shapes.items()), tuple(attrs.items()), tuple(plan.sizes.items()))]


# parts of a stack follow each other; a larger cache would slow every garbage collection
@functools.lru_cache(maxsize=8)
def _tiles(
    spec: Spec,
    sizes: tuple[tuple[str, Shape], ...],
    values: tuple[tuple[str, Any], ...],
    planned: tuple[tuple[str, int], ...],
) -> tuple[Tile, ...]:
    shapes, attrs, plan = dict(sizes), dict(values), dict(planned)
    bound, whole = variables(spec, shapes, attrs), _whole(spec, shapes, attrs)
    legal = tileable_axes(spec, shapes, attrs)
    cuts: list[list[_Cut]] = []
    # split reductions last, so that the slices of one output follow each other
    for axis in sorted(plan, key=lambda name: (name in legal and _rule(spec, name).rule == "accumulate", name)):
        if axis not in legal:
            raise UnsupportedError(f"{spec.op}: axis {axis!r} cannot be tiled here; these can: {', '.join(legal)}.")
        size = plan[axis]
        starts = range(0, legal[axis], size)
        cuts.append([_Cut(axis, s, min(s + size, legal[axis]), p, len(starts)) for p, s in enumerate(starts)])
    return tuple(_cut(spec, whole, shapes, bound, combination) for combination in itertools.product(*cuts))


def part(
    spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, AttrValue], cuts: Mapping[str, tuple[int, int]]
) -> Tile:
    """Return the tile whose output is cut to [start, stop) along the axes of *cuts*, which can be cut."""
    bound = variables(spec, shapes, attrs)
    ends = tuple(_Cut(axis, start, stop, 0, 1) for axis, (start, stop) in cuts.items())
    return _cut(spec, _whole(spec, shapes, attrs), shapes, bound, ends)


def needed(
    spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, AttrValue], index: Sequence[int]
) -> dict[str, Box]:
    """Return the box of each operand that the output element at *index* needs. Axes that cannot be cut stay whole."""
    cuts = {}
    for axis in tileable_axes(spec, shapes, attrs):
        if _rule(spec, axis).rule != "accumulate":
            numbered = not isinstance(spec.tiling, NoTiling) and axis not in spec.tiling
            place = int(axis.removeprefix("d")) if numbered else _output_axis(spec, axis, len(index))
            cuts[axis] = (index[place], index[place] + 1)
    return dict(part(spec, shapes, attrs, cuts).inputs)


def _whole(spec: Spec, shapes: Mapping[str, Shape], attrs: Mapping[str, AttrValue]) -> Tile:
    output = next(iter(infer_shapes(spec, shapes, attrs).values()))
    boxes = {name: tuple((0, size) for size in shape) for name, shape in shapes.items()}
    return Tile(tuple((0, size) for size in output), boxes, dict(attrs))


@dataclass(frozen=True)
class _Cut:
    axis: str
    start: int
    stop: int
    part: int
    parts: int


def _cut(spec: Spec, tile: Tile, shapes: Mapping[str, Shape], bound: Mapping[str, Any], cuts: tuple[_Cut, ...]) -> Tile:
    for cut in cuts:
        rule = _rule(spec, cut.axis)
        match rule.rule:
            case "accumulate":
                inputs = _sliced_by_name(spec, tile, str(rule.axis), cut)
                tile = Tile(tile.output, inputs, tile.attrs, cut.part, cut.parts)
            case "halo":
                tile = _halo(spec, tile, rule, cut, shapes, bound)
            case "independent" if cut.axis in spec.tiling:
                axis = _output_axis(spec, cut.axis, len(tile.output))
                inputs = _sliced_by_name(spec, tile, cut.axis, cut)
                tile = Tile(_set(tile.output, axis, cut), inputs, tile.attrs, tile.part, tile.parts)
            case _:
                tile = _any_axis(spec, tile, rule, cut, shapes, bound)
    return tile


def _sliced_by_name(spec: Spec, tile: Tile, name: str, cut: _Cut) -> dict[str, Box]:
    boxes = {}
    for operand, box in tile.inputs.items():
        for axis in _axes_with(spec, operand, len(box), name):
            box = _set(box, axis, cut)  # noqa: PLW2901 - a box is cut axis by axis
        boxes[operand] = box
    return boxes


@functools.lru_cache(maxsize=4096)
def _axes_with(spec: Spec, operand: str, rank: int, name: str) -> tuple[int, ...]:
    """Return the axes of an operand whose size follows from *name*."""
    return tuple(axis for axis, size in _places(spec.inputs[operand].axes, rank).items() if name in size.names)


def _places(axes: Any, rank: int) -> dict[int, Expression]:
    return (named_axes(axes, rank) or {}) if isinstance(axes, list) else {}


def _halo(
    spec: Spec, tile: Tile, rule: TileRule, cut: _Cut, shapes: Mapping[str, Shape], bound: Mapping[str, Any]
) -> Tile:
    """Return the input window of output rows [start, stop).

    Places outside the tensor become padding. For a window wholly outside, the slice is empty.
    """
    if rule.stride is None or rule.window is None or rule.before is None or rule.after is None:
        raise SpecError(f"{spec.op}: tiling.{cut.axis}: a halo needs stride, window, before and after.")
    if rule.axis is None:
        axis = int(cut.axis.removeprefix("d"))
        operand, place, bound = next(iter(shapes)), axis, dict(bound) | {"i": axis}
    else:
        operand, axis = _place(spec, rule.axis, shapes)
        place = _output_axis(spec, cut.axis, len(tile.output))
    stride, window = int(rule.stride(bound)), int(rule.window(bound))
    left, right = _padding_entry(rule.before, bound), _padding_entry(rule.after, bound)
    # in places of the unpadded input: negative inside the padding
    first = cut.start * stride - bound[left[0]][left[1]]
    end = (cut.stop - 1) * stride + window - bound[left[0]][left[1]]
    size = shapes[operand][axis]
    low = min(max(first, 0), size)
    high = max(low, min(end, size))
    # a window wholly inside the padding reads nothing, and all of it becomes padding before
    before, after = (low - first, end - high) if high > low else (end - first, 0)
    attrs = dict(tile.attrs)
    attrs[left[0]] = _at(attrs[left[0]], left[1], before)
    attrs[right[0]] = _at(attrs[right[0]], right[1], after)
    inputs = {**tile.inputs, operand: _put(tile.inputs[operand], axis, (low, high))}
    return Tile(_set(tile.output, place, cut), inputs, attrs, tile.part, tile.parts)


Entry = tuple[str, int]
"""An attribute, and an index into its value."""


def padded_places(spec: Spec, tile: Tile, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, int, Entry, Entry]]:
    """Yield (operand, axis, padding before it, padding after it) for every axis along which windows move."""
    rules = {} if isinstance(spec.tiling, NoTiling) else spec.tiling
    for rule in rules.values():
        if rule.rule == "halo" and rule.axis is not None and rule.before is not None and rule.after is not None:
            operand, axis = _place(spec, rule.axis, shapes)
            yield operand, axis, _padding_entry(rule.before, tile.attrs), _padding_entry(rule.after, tile.attrs)


def _padding_entry(pair: Sequence[Expression], bound: Mapping[str, Any]) -> tuple[str, int]:
    """Return the attribute and the index in it that hold the padding at one side."""
    return str(plain_name(pair[0])), int(pair[1](bound))


def _place(spec: Spec, name: str, shapes: Mapping[str, Shape]) -> tuple[str, int]:
    """Return the operand and axis that are called *name*."""
    return _place_among(spec, name, tuple((operand, len(shape)) for operand, shape in shapes.items()))


@functools.lru_cache(maxsize=4096)
def _place_among(spec: Spec, name: str, ranks: tuple[tuple[str, int], ...]) -> tuple[str, int]:
    for operand, rank in ranks:
        for axis, expression in _places(spec.inputs[operand].axes, rank).items():
            if plain_name(expression) == name:
                return operand, axis
    raise SpecError(f"{spec.op}: tiling: no operand has an axis {name!r}.")


def _any_axis(
    spec: Spec, tile: Tile, rule: TileRule, cut: _Cut, shapes: Mapping[str, Shape], bound: Mapping[str, Any]
) -> Tile:
    """Return *tile* with one axis cut, in the output and in the activations that have this axis."""
    axis = int(cut.axis.removeprefix("d"))
    rank, inputs = len(tile.output), {}
    for operand, box in tile.inputs.items():
        shape = shapes[operand]
        # operands of lower rank are aligned at their last axis
        own = axis - (rank - len(shape)) if rule.input_axis is None else _input_axis(rule, operand, bound, axis)
        item = spec.inputs[operand]
        has = (item.role == "activation" or item.weight_in_blocks is not None) and 0 <= own < len(shape)
        # an operand of size 1 broadcasts along the axis and stays whole
        shared = has and (shape[own] != 1 or tile.output[axis][1] - tile.output[axis][0] == 1)
        inputs[operand] = _set(box, own, cut) if shared else box
    return Tile(_set(tile.output, axis, cut), inputs, tile.attrs, tile.part, tile.parts)


def _input_axis(rule: TileRule, operand: str, bound: Mapping[str, Any], axis: int) -> int:
    """Return the axis of an operand that is cut together with output axis *axis*; -1 if it stays whole."""
    found = rule.input_axis.get(operand) if isinstance(rule.input_axis, dict) else rule.input_axis
    return -1 if found is None else int(found(dict(bound) | {"i": axis}))


def _rule(spec: Spec, axis: str) -> TileRule:
    rules: dict[str, TileRule] = spec.tiling  # type: ignore[assignment]
    return rules[axis] if axis in rules else rules["*"]


def _holds(condition: Any, bound: Mapping[str, Any]) -> bool:
    return condition is None or bool(condition(bound))


def _output_places(spec: Spec, rank: int) -> dict[int, Expression]:
    return _places(next(iter(spec.outputs.values())).axes or [], rank)


@functools.lru_cache(maxsize=4096)
def _output_axis(spec: Spec, name: str, rank: int) -> int:
    return next(place for place, axis in _output_places(spec, rank).items() if name in axis.names)


def _set(box: Box, axis: int, cut: _Cut) -> Box:
    return _put(box, axis, (cut.start, cut.stop))


def _put(box: Box, axis: int, ends: tuple[int, int]) -> Box:
    return (*box[:axis], ends, *box[axis + 1 :])


def _at(value: AttrValue, index: int, number: int) -> AttrValue:
    if not isinstance(value, tuple):
        raise TypeError(f"padding {value!r}: must be a list")
    return (*value[:index], number, *value[index + 1 :])


def slices(box: Box) -> tuple[slice, ...]:
    """Return *box* as an index."""
    return tuple(slice(start, stop) for start, stop in box)
