"""Axes of Compass layers: lists of axes counted from the front, with permuted constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from quantizer.core.errors import GraphError
from quantizer.core.expressions import Expression
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_text import format_loosely
from quantizer.ir.graph import AttrValue, Tensor


def first_of_trailing(where: str, key: str, listed: AttrValue, rank: int) -> int:
    """Return the axis that *listed* starts with; GraphError unless it names that axis and all after it, in order."""
    axes = listed if isinstance(listed, tuple) else ()
    numbers = [axis for axis in axes if isinstance(axis, int) and not isinstance(axis, bool)]
    if not numbers or len(numbers) < len(axes) or tuple(numbers) != trailing(numbers[0], rank):
        wanted = list(range(max(0, rank - max(len(axes), 1)), rank))
        raise GraphError(f"{where}: {key}: got {format_loosely(listed)}: must list trailing axes, such as {wanted}.")
    return numbers[0]


def trailing(axis: int, rank: int) -> tuple[int, ...]:
    """Return *axis* and all axes after it in a tensor of *rank* axes, as negative numbers if *axis* is negative."""
    return tuple(range(axis, 0 if axis < 0 else rank))


def from_front(value: Any, rank: int) -> Any:
    """Return one axis or several, negative ones counted from the front of *rank* axes."""
    if isinstance(value, tuple | list):
        return type(value)(from_front(item, rank) for item in value)
    return value + rank if value < 0 else value


def constant_order(spec: Spec, name: str) -> list[int]:
    """Return, for each axis of constant *name* of a channels_last node, the number of the layer's axis.

    Only for constants with a layout in `formats.compass`.
    """
    assert FORMAT in spec.formats
    item = spec.inputs[name]
    ours = [axis.text for axis in cast("list[Expression]", item.axes)]
    # the spec lists the channel second, and a channels_last node has it at the end
    last = [ours[0], *ours[2:], ours[1]] if item.spatial else ours
    return [spec.formats[FORMAT].layouts[name].index(axis) for axis in last]


def checked_order(where: str, spec: Spec, name: str, tensor: Tensor) -> list[int]:
    """Return `constant_order` of *tensor*; GraphError if it has another rank."""
    order = constant_order(spec, name)
    if len(tensor.shape) != len(order):
        raise GraphError(f"{where}: {name!r} has rank {len(tensor.shape)}: {spec.op} takes rank {len(order)}.")
    return order


def permuted(tensor: Tensor, name: str, order: list[int]) -> Tensor:
    """Return *tensor* under *name*, with permuted axes: axis i of the result is axis order[i] of *tensor*."""
    shape = tuple(tensor.shape[axis] for axis in order)
    data = None if tensor.data is None else tensor.data.permute(order).contiguous()
    params = tensor.qparams
    if params is not None and params.axis is not None:
        params = replace(params, axis=order.index(params.axis % len(order)))
    return replace(tensor, name=name, shape=shape, data=data, qparams=params)
