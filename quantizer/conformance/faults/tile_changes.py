"""Small changes to the tiles of a plan: windows, seams, padding, partial sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from quantizer.core.case import TilePlan
from quantizer.core.spec import Spec
from quantizer.ops.registry import Function
from quantizer.tiling.windows import Box, Tile, tiles

Retiled = Callable[[list[Tile], dict[str, tuple[int, ...]], dict[str, Any]], list[Tile]]


def retiled(change: Retiled) -> Callable[[Function], Function]:
    """Change the tiles of every plan of more than one: change(tiles, shapes of the operands, attributes)."""

    def wrap(original: Function) -> Function:
        del original

        def faulty(spec: Spec, shapes: Any, attrs: Any, plan: TilePlan) -> list[Tile]:
            found = tiles(spec, shapes, attrs, plan)
            # a plan of one tile is the run without tiles, where no fault of tiles can show
            return change(found, shapes, attrs) if len(found) > 1 else found

        return faulty

    return wrap


def _first_seam(tile: Tile, shape: tuple[int, ...]) -> int | None:
    """Return the first axis along which the input window of *tile* ends inside the tensor."""
    return next((i for i, (_, stop) in enumerate(tile.inputs["x"]) if stop < shape[i]), None)


def _put(box: Box, axis: int, ends: tuple[int, int]) -> Box:
    return (*box[:axis], ends, *box[axis + 1 :])


def _moved_seams(found: list[Tile], shapes: dict[str, tuple[int, ...]], by: tuple[int, int]) -> list[Tile]:
    """Move the ends of each input window by *by*, unless the window reaches the end of the tensor."""
    moved = []
    for tile in found:
        axis = _first_seam(tile, shapes["x"]) if "x" in tile.inputs else None
        if axis is None:
            moved.append(tile)
            continue
        low, high = tile.inputs["x"][axis]
        ends = low + by[0], high + by[1]
        moved.append(replace(tile, inputs={**tile.inputs, "x": _put(tile.inputs["x"], axis, ends)}))
    return moved


def halo_too_wide(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Make input windows one element too long where the tensor goes on."""
    return _moved_seams(found, shapes, (0, 1))


def halo_shifted(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Move input windows by one element where the tensor goes on."""
    return _moved_seams(found, shapes, (1, 1))


def padding_everywhere(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Give every tile the padding of the whole image."""
    return [replace(tile, attrs=dict(attrs)) for tile in found]


def seam_doubled(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Compute the first tile twice."""
    # a tile that is written twice must be noticed, even though its codes are right
    return [found[0], *found]


def seam_late(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Exchange the results of the first two tiles of the same shape."""
    first = found[0]
    size = [stop - start for start, stop in first.output]
    for place, other in enumerate(found[1:], 1):
        if other.output != first.output and [stop - start for start, stop in other.output] == size:
            swapped = list(found)
            swapped[0], swapped[place] = (
                replace(first, output=other.output),
                replace(other, output=first.output),
            )
            return swapped
    return found


def sum_restarted(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Restart a split sum with each part, so that only the last part remains."""
    return [replace(tile, part=0, parts=1) for tile in found if tile.part == tile.parts - 1]


def part_left_out(found: list[Tile], shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> list[Tile]:
    """Leave out the first part of a split sum, but keep its place in the order."""
    kept = []
    for tile in found:
        if tile.parts == 1:
            kept.append(tile)
        elif tile.part:
            kept.append(replace(tile, part=tile.part - 1, parts=tile.parts - 1))
    return kept
