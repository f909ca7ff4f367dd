"""Layers without a spec that move codes: Split of several outputs, Gather, Crop, and Cast, which keeps the codes it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_handed import filed
from quantizer.ir.formats.compass_text import format_loosely
from quantizer.ir.graph import AttrValue, Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import QParams
from quantizer.plugins.alone import LoneLayer, activations

Move = Callable[["MovingLayer", Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class MovingLayer(LoneLayer):
    """A layer whose outputs have the parameters of what it reads first."""

    name: str
    kind: str
    attrs: Mapping[str, AttrValue]
    count: int
    """Outputs."""
    inputs: tuple[QParams, ...] = ()
    """Parameters of what it reads, once it is quantized."""

    @property
    def quantized(self) -> bool:
        """Whether the layer moves codes."""
        return bool(self.inputs)

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for *operands*; GraphError where an attribute does not fit them."""
        return MOVES[self.kind](self, operands)

    def decided(
        self, samples: Sequence[Tensor], inputs: Sequence[QParams], ranges: Sequence[tuple[float, float]],  # noqa: ARG002
        attrs: Mapping[str, Any],  # noqa: ARG002
    ) -> LoneLayer:  # fmt: skip
        """Return the layer with the parameters of what it reads."""
        return replace(self, inputs=tuple(inputs))

    @property
    def outputs(self) -> list[QParams]:
        """What the codes of each output mean: what those of the first input mean."""
        return [self.inputs[0]] * self.count

    def constants(self) -> dict[str, GraphTensor]:
        """Return none: such a layer has no constants."""
        return {}

    def params(self) -> dict[str, Any]:
        """Return the layer's parameters; a Cast says the format that its codes have."""
        if self.kind != "Cast" or not self.quantized:
            return dict(self.attrs)
        return {**self.attrs, "to_dtype": filed(self.inputs[0]).dtype}

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number among the layer's parameters."""
        value = self.attrs.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "must be an integer")
        return value

    def wrong(self, key: str, what: str) -> GraphError:
        """Return the error of a parameter."""
        shown = format_loosely(self.attrs[key]) if key in self.attrs else "nothing"
        return GraphError(f"layer {self.name!r}: {self.kind}: {key}: got {shown[:60]}: {what}.")


def moving_layer(graph: Graph, node: Node) -> MovingLayer | None:
    """Return the layer where it is one that moves codes; None else. UnsupportedError for a Gather from a table of its own."""
    if node.op not in MOVES:
        return None
    if node.extra.get(CONSTANTS):
        raise UnsupportedError(f"layer {node.name!r}: {node.op} with constants is not built here.")
    wanted = 2 if node.op == "Gather" else 1
    if len(activations(node)) != wanted:
        raise GraphError(f"layer {node.name!r}: {node.op} has {len(activations(node))} inputs, must have {wanted}.")
    layer = MovingLayer(node.name, node.op, node.attrs, len(node.outputs))
    shapes = [
        tuple(values.shape) for values in layer.run([torch.zeros(graph.tensor(n).shape) for n in activations(node)])
    ]
    said = [graph.tensor(name).shape for name in node.outputs]
    if shapes != said:
        raise GraphError(f"layer {node.name!r}: {node.op} makes {shapes}, the IR says {said}. Correct layer_top_shape.")
    return layer


def _split(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Cut along one axis into parts of the given sizes."""
    (x,) = operands
    axis, sizes = layer.number("axis"), layer.attrs.get("splits")
    whole = x.shape[axis] if -x.dim() <= axis < x.dim() else -1
    if (
        not isinstance(sizes, tuple)
        or not all(isinstance(size, int) for size in sizes)
        or sum(cast("tuple[int, ...]", sizes)) != whole
    ):
        raise layer.wrong("splits", f"must be sizes that add up to {whole}, that of axis {axis}")
    return [part.contiguous() for part in torch.split(x, list(cast("tuple[int, ...]", sizes)), dim=axis)]


def _gather(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Take slices along one axis at the indices, which count from the end where they are negative; outer axes are paired."""
    x, indices = operands[0], operands[1].long()
    axis, pairs = layer.number("axis"), layer.number("batch_dims", 0)
    axis = axis + x.dim() if axis < 0 else axis
    if not 0 <= pairs <= axis < x.dim() or x.shape[:pairs] != indices.shape[:pairs]:
        raise layer.wrong("axis", f"must lie in [{pairs}, {x.dim() - 1}], behind {pairs} axes that the indices share")
    size = x.shape[axis]
    if bool(((indices < -size) | (indices >= size)).any()):
        raise GraphError(
            f"layer {layer.name!r}: Gather: an index leaves [{-size}, {size - 1}], the axis that it counts."
        )
    rows = x.reshape(-1, *x.shape[pairs:])
    places = (indices % size).reshape(len(rows), -1)
    taken = torch.stack([row.index_select(axis - pairs, own) for row, own in zip(rows, places, strict=True)])
    return [taken.reshape(*x.shape[:axis], *indices.shape[pairs:], *x.shape[axis + 1 :])]


def _crop(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Take a box: [first, end) along each axis but that of the batch, which stays whole."""
    (x,) = operands
    crops = layer.attrs.get("crops")
    boxes = cast("tuple[tuple[int, int], ...]", crops) if isinstance(crops, tuple) else ()
    if len(boxes) != x.dim() or not all(isinstance(box, tuple) and len(box) == 2 for box in boxes):
        raise layer.wrong("crops", f"must be a list of {x.dim()} pairs [first,end]")
    return [x[(slice(None), *(slice(first, end) for first, end in boxes[1:]))].contiguous()]


def _cast(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Keep codes; bring real values to an integer type by cutting fractions off and wrapping, as the original does."""
    (x,) = operands
    wanted = layer.attrs.get("to_dtype")
    if not isinstance(wanted, DType):
        raise layer.wrong("to_dtype", "must be a number format, such as int32")
    if layer.quantized or not wanted.is_integer:
        return [x.clone()]
    span = 1 << wanted.bits
    return [((x.trunc().double() - wanted.min) % span + wanted.min).to(x.dtype)]


MOVES: Mapping[str, Move] = {"Split": _split, "Gather": _gather, "Crop": _crop, "Cast": _cast}
"""Layer type -> what it does with values or codes."""
