"""Layers without a spec that move codes: Crop, Pad with elements of its input, and Cast, which keeps codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_params import scale_of
from quantizer.ir.formats.compass_quantized import filed
from quantizer.ir.formats.compass_text import format_loosely
from quantizer.ir.graph import LARGEST, AttrValue, Graph, Node, check_size
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import QParams
from quantizer.numerics.rules import full_range
from quantizer.plugins.layers_without_spec import LoneLayer, activations

WHOLE = ("Crop",)
"""Layers whose outputs may use all codes of their format, even if the input does not (Compass)."""
CONSTANT_VALUE = "constant_value"
PADDED: Mapping[str, Literal["edge", "reflect", "symmetric", "wrap"]] = {
    "edge": "edge",
    "reflect": "reflect",
    "symmetric": "symmetric",
    "wrap": "wrap",
}
"""Mode of a Pad -> numpy's name of it; CONSTANT has a spec."""
Move = Callable[["MovingLayer", Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class MovingLayer(LoneLayer):
    """A layer whose outputs have the parameters of its first input."""

    name: str
    kind: str
    attrs: Mapping[str, AttrValue]
    count: int
    """Outputs."""
    batch: int = 0
    """Size of the first axis of its input, from the IR."""
    inputs: tuple[QParams, ...] = ()
    """Parameters of its input, after quantization."""

    @property
    def quantized(self) -> bool:
        """Whether the layer moves codes."""
        return bool(self.inputs)

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for *operands*; GraphError if an attribute does not fit them."""
        return MOVES[self.kind](self, operands)

    def decided(
        self,
        samples: Sequence[Tensor],  # noqa: ARG002
        inputs: Sequence[QParams],
        ranges: Sequence[tuple[float, float]],  # noqa: ARG002
        attrs: Mapping[str, Any],  # noqa: ARG002
    ) -> LoneLayer:
        """Return the layer with the parameters of its input."""
        return replace(self, inputs=tuple(inputs))

    @property
    def outputs(self) -> list[QParams]:
        """Each output has the parameters of the first input."""
        return [full_range(self.inputs[0]) if self.kind in WHOLE else self.inputs[0]] * self.count

    def constants(self) -> dict[str, GraphTensor]:
        """Return {}: such a layer has no constants."""
        return {}

    def params(self) -> dict[str, Any]:
        """Return the layer's parameters; a Cast names the format of its codes, and a Pad's value becomes a code."""
        if self.quantized and self.kind == "Pad" and CONSTANT_VALUE in self.attrs:
            return {**self.attrs, CONSTANT_VALUE: self._code(self.attrs[CONSTANT_VALUE])}
        if self.kind != "Cast" or not self.quantized:
            return dict(self.attrs)
        return {**self.attrs, "to_dtype": filed(self.inputs[0]).dtype}

    def _code(self, value: AttrValue) -> float:
        """Return the code of a number, in the number's type. No mode here reads it, but the original writes it."""
        params = self.inputs[0]
        code = round(float(cast("float", value)) * float(scale_of(params)) + int(params.zero_point))
        held = min(max(code, params.qmin), params.qmax)
        return held if isinstance(value, int) else float(held)

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number among the layer's parameters."""
        value = self.attrs.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "must be an integer")
        return value

    def pairs(self, key: str, count: int, what: str) -> tuple[tuple[int, int], ...]:
        """Return pairs of whole numbers among the layer's parameters, one for each of *count* axes."""
        value = self.attrs.get(key)
        rows = value if isinstance(value, tuple) else ()
        if len(rows) != count or not all(
            isinstance(row, tuple) and len(row) == 2 and all(type(item) is int for item in row) for row in rows
        ):
            raise self.wrong(key, f"must be a list of {count} pairs {what} of integers")
        return cast("tuple[tuple[int, int], ...]", rows)

    def wrong(self, key: str, what: str) -> GraphError:
        """Return the error of a parameter."""
        shown = format_loosely(self.attrs[key]) if key in self.attrs else "nothing"
        return GraphError(f"layer {self.name!r}: {self.kind}: {key}: got {shown[:60]}: {what}.")


def moving_layer(graph: Graph, node: Node) -> MovingLayer | None:
    """Return the layer if it moves codes, else None. UnsupportedError for a layer with constants."""
    if node.op not in MOVES:
        return None
    if node.extra.get(CONSTANTS):
        raise UnsupportedError(f"layer {node.name!r}: {node.op} with constants is not implemented here.")
    if len(activations(node)) != 1:
        raise GraphError(f"layer {node.name!r}: {node.op} has {len(activations(node))} inputs, must have 1.")
    shape = graph.tensor(activations(node)[0]).shape
    layer = MovingLayer(node.name, node.op, node.attrs, len(node.outputs), shape[0] if shape else 0)
    check_size(f"layer {node.name!r}: {node.op}", shape, torch.float32.itemsize)
    # a run on zeros shows the shapes that its parameters give, and whether they fit
    shapes = [tuple(values.shape) for values in layer.run([torch.zeros(shape, dtype=torch.float32)])]
    said = [graph.tensor(name).shape for name in node.outputs]
    if shapes != said:
        raise GraphError(f"layer {node.name!r}: {node.op} makes {shapes}, the IR says {said}. Correct layer_top_shape.")
    return layer


def _crop(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Take a box: [first, end) along each axis."""
    (x,) = operands
    boxes = layer.pairs("crops", x.dim(), "[first,end]")
    return [boxed(x, boxes, layer.batch or len(x)).contiguous()]


def boxed(x: Tensor, box: Sequence[tuple[int, int]], batch: int) -> Tensor:
    """Return [first, end) along each axis.

    If the first axis is not *batch* long, as in the IR, its box is scaled along.
    """
    (first, end), *rest = box
    # the box counts rows of the IR's batch, and the fed batch may have more
    share = slice(first * len(x) // batch, end * len(x) // batch)
    return x[(share, *(slice(start, stop) for start, stop in rest))]


def _cast(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Keep codes; convert real values to an integer type by truncation and wrapping, as the original does."""
    (x,) = operands
    wanted = layer.attrs.get("to_dtype")
    if not isinstance(wanted, DType):
        raise layer.wrong("to_dtype", "must be a number format, such as int32")
    if layer.quantized or not wanted.is_integer:
        return [x.clone()]
    span = 1 << wanted.bits
    # in float64, because float32 cannot hold a difference from -2^31 exactly
    return [((x.trunc().double() - wanted.min) % span + wanted.min).to(x.dtype)]


def _pad(layer: MovingLayer, operands: Sequence[Tensor]) -> list[Tensor]:
    """Pad each axis with elements from near its ends, or from its other end, as numpy does."""
    (x,) = operands
    mode = PADDED.get(str(layer.attrs.get("mode", "")).lower())
    if mode is None:
        raise layer.wrong("mode", f"must be CONSTANT, {', '.join(name.upper() for name in PADDED)}")
    pairs = layer.pairs("pads", x.dim(), "[before,after]")
    if any(min(pair) < 0 for pair in pairs):
        raise layer.wrong("pads", "no number may be negative")
    value = layer.attrs.get(CONSTANT_VALUE, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise layer.wrong(CONSTANT_VALUE, "must be a finite number")
    made = [before + size + after for size, (before, after) in zip(x.shape, pairs, strict=True)]
    # before numpy allocates the result
    if math.prod(made) * x.element_size() > LARGEST:
        raise layer.wrong("pads", f"makes shape {made}, more than {LARGEST} bytes")
    return [torch.from_numpy(np.pad(x.numpy(), pairs, mode=mode))]


MOVES: Mapping[str, Move] = {"Crop": _crop, "Cast": _cast, "Pad": _pad}
"""Layer type -> its function on values or codes."""
