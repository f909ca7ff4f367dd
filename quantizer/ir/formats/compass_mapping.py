"""Maps operators to Compass layers by a spec's `formats.compass`: attributes, sizes, constants, fused activation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.expressions import Expression
from quantizer.core.layer_format import LayerFormat
from quantizer.core.shapes import named_axes
from quantizer.core.spec import Domain, Input, Output, Spec
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, nearest

FORMAT = "compass"
"""The key of `formats` in specs."""
SLOPES = "negative_slope"
"""The constant of slopes below 0."""
FUSED_KEYS = {"clip": {"low": "clip_min", "high": "clip_max"}, "leakyrelu": {"slope": "negative_slope_value"}}
"""Fused activation -> its argument -> the layer's key for it."""


def mapped_attrs(spec: Spec, form: LayerFormat) -> list[tuple[str, Domain]]:
    """Return the attributes of the layer, in the spec's order; UnsupportedError for one that the spec lacks."""
    unknown = [name for name in form.attrs if name not in spec.attrs]
    if unknown:
        hint = nearest(unknown[0], spec.attrs)
        raise UnsupportedError(f"spec {spec.op}: formats.compass.attrs.{unknown[0]}: no such attribute.{hint}")
    return [(name, domain) for name, domain in spec.attrs.items() if name in form.attrs]


def defaults_of(spec: Spec) -> dict[str, AttrValue]:
    """Return the attributes that have a default, lists as tuples."""
    values = {name: domain.default for name, domain in spec.attrs.items() if domain.default is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def named_sizes(graph: Graph, node: Node, spec: Spec) -> dict[str, object]:
    """Return attributes and named sizes; GraphError if ranks or two sizes of one name differ."""
    found: dict[str, object] = dict(node.attrs)
    operands: list[tuple[str, Input | Output, str | None]] = []
    operands += [(name, item, tensor) for (name, item), tensor in zip(spec.inputs.items(), node.inputs, strict=True)]
    operands += [(key, spec.outputs[key], tensor) for key, tensor in spec.keys_of(node.outputs)]
    for name, item, tensor in operands:
        if tensor is None or item.axes is None:
            continue
        shape = graph.tensor(tensor).shape
        if item.spatial and node.order == "channels_last" and len(shape) > 2:
            shape = (shape[0], shape[-1], *shape[1:-1])
        elif name in node.transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        if not isinstance(item.axes, list):
            pairs: list[tuple[object, object]] = [(item.axes, shape)]
        elif (places := named_axes(item.axes, len(shape))) is None:
            axes = ", ".join(axis.text for axis in item.axes)
            raise GraphError(f"layer {node.name!r}: {name!r} has rank {len(shape)}: {spec.op} takes [{axes}].")
        else:
            pairs = [(axis, shape[place]) for place, axis in places.items()]
        for axis, size in pairs:
            # an axis that is a plain name binds it to its size; an axis that is a formula binds nothing
            if isinstance(axis, Expression) and axis.names == {axis.text} and found.setdefault(axis.text, size) != size:
                raise GraphError(f"layer {node.name!r}: {axis.text} is {found[axis.text]} and in {name!r} {size}.")
    return found


def evaluate(expression: object, variables: Mapping[str, object]) -> AttrValue:
    """Return the value of a derived parameter."""
    assert isinstance(expression, Expression)
    return cast("AttrValue", expression(variables))


def constant_keys(node: Node) -> tuple[str, ...]:
    """Return Compass's names of the layer's constants, its last inputs."""
    return cast("tuple[str, ...]", node.extra.get(CONSTANTS, ()))


def fused_attrs(where: str, node: Node, activation: str, slopes: Tensor | None, rank: int) -> dict[str, object]:
    """Return the arguments of a layer's fused activation, by our names; GraphError if the layer lacks one.

    *slopes*: the layer's constant of that name; *rank*: of its first input, which the slopes may have too.
    """
    found: dict[str, object] = {}
    for name, key in FUSED_KEYS.get(activation, {}).items():
        value = node.attrs.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GraphError(f"{where}: {activation.upper()} without {key}: write {key}=... for it.")
        found[name] = float(value)
    if activation == "prelu":
        if slopes is None or slopes.data is None:
            raise GraphError(f"{where}: PRELU without constant {SLOPES!r}: it holds the slopes below 0.")
        found["slope"] = slopes_of(where, slopes.data, rank).reshape(-1)
    return found


def slopes_of(where: str, slopes: torch.Tensor, rank: int) -> torch.Tensor:
    """Return slopes in the form of a quantized layer: without a leading axis of equal slices of a *rank* input."""
    if slopes.dim() >= rank and slopes.dim() > 0 and bool((slopes == slopes[:1]).all()):
        slopes = slopes[0]
    if slopes.dim() and slopes.numel() != slopes.shape[-1]:
        raise GraphError(
            f"{where}: {SLOPES!r} has shape {list(slopes.shape)}: must be one slope, or one for each channel."
        )
    return slopes


def fused_text(activation: str, form: LayerFormat) -> str:
    """Return the layer's text for a fused activation, or for no activation."""
    return form.unfused if activation == "none" else activation.upper()
