"""Cuts operands and parameters to one tile, and stitches the tiles' results together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from quantizer.core.shapes import channel_axis, variables
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Bounds, Constant, Parameters, QParams, Slope
from quantizer.tiling.windows import Box, Tile, padded_places, slices


class UnfitError(ValueError):
    """The results of the tiles do not make up the output."""


def cut(operands: Mapping[str, Tensor], tile: Tile) -> dict[str, Tensor]:
    """Return the boxes of *operands* that *tile* sees."""
    return {name: values[slices(tile.inputs[name])] for name, values in operands.items()}


def padded_with(operands: Mapping[str, Tensor], spec: Spec, tile: Tile, code: int) -> tuple[dict[str, Tensor], Tile]:
    """Return the operands of a tile, padded with *code*, and the tile without padding."""
    found, attrs = dict(operands), dict(tile.attrs)
    shapes = {name: tuple(values.shape) for name, values in operands.items()}
    for operand, axis, before, after in padded_places(spec, tile, shapes):
        for name, index in (before, after):
            numbers = list(cast("tuple[int, ...]", attrs[name]))
            values = found[operand]
            shape = (*values.shape[:axis], max(0, numbers[index]), *values.shape[axis + 1 :])
            border = torch.full(shape, code, dtype=values.dtype)
            parts = [border, values] if (name, index) == before else [values, border]
            found[operand] = torch.cat(parts, axis)
            # negative padding crops, and stays with the operator
            numbers[index] = min(0, numbers[index])
            attrs[name] = tuple(numbers)
    return found, replace(tile, attrs=attrs)


def cut_parameters(parameters: Parameters, spec: Spec, tile: Tile) -> Parameters:
    """Return *parameters* with per-channel numbers cut to the channels of *tile*."""
    constants = {
        name: Constant(constant.codes[slices(tile.inputs[name])], _sliced(constant.params, tile.inputs[name]))
        for name, constant in parameters.constants.items()
    }
    shapes = {name: tuple(stop - start for start, stop in box) for name, box in tile.inputs.items()}
    axis = channel_axis(spec, variables(spec, shapes, tile.attrs), len(tile.output))
    rescale = parameters.rescale
    if rescale is not None and axis is not None:
        rescale = rescale.sliced(*tile.output[axis])
    return replace(parameters, constants=constants, rescale=rescale, fused=_cut_fused(parameters.fused, tile.output))


def _cut_fused(fused: Slope | Bounds | None, output: Box) -> Slope | Bounds | None:
    """Return the numbers of a fused activation for a part of the output: slopes along an axis are cut with it."""
    if not isinstance(fused, Slope) or fused.codes.numel() == 1:
        return fused
    start, stop = output[fused.axis]
    return replace(fused, codes=fused.codes[..., start:stop])


def _sliced(params: QParams, box: Box) -> QParams:
    if params.axis is None:
        return params
    blocks = params.blocks
    # a cut may begin inside a block
    part = params if blocks is None else replace(params, blocks=blocks.cut(box[blocks.axis][0]))
    return part.sliced(*box[params.axis])


def stitch(shape: tuple[int, ...], parts: Sequence[tuple[Tile, Tensor]], dtype: torch.dtype) -> Tensor:
    """Return the output, put together from the results of the tiles.

    UnfitError if a result does not have the shape of its box, or an element is not in exactly one tile.
    """
    # counted, so that overlaps show as well as gaps
    whole, covered = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=torch.int64)
    for tile, values in parts:
        box = tuple(stop - start for start, stop in tile.output)
        if tuple(values.shape) != box:
            raise UnfitError(
                f"tile {list(tile.output)}: the result has shape {list(values.shape)}, must be {list(box)}"
            )
        whole[slices(tile.output)] = values.to(dtype)
        covered[slices(tile.output)] += 1
    if bool((covered != 1).any()):
        index = (covered != 1).nonzero()[0].tolist()
        raise UnfitError(f"output element {index} lies in {int(covered[tuple(index)])} tiles, must lie in 1")
    return whole
