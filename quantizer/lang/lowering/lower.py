"""Converts a graph of Top operators to ONNX's operators, with the same inputs, outputs and names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import torch

from quantizer.core.errors import QuantizerError, UnsupportedError
from quantizer.ir.formats.top_ops import ABSENT, TOP_OPS
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.lang.lowering.emitter import Emitter, Value
from quantizer.lang.lowering.rounding import codes
from quantizer.numerics.qparams import QParams

Outcome: TypeAlias = "Value | list[Value]"
F = TypeVar("F", bound=Callable[..., Any])
FAMILIES = (
    "products",
    "elementwise",
    "functions",
    "quantization",
    "pools",
    "movement",
    "reductions",
    "norms",
    "vision",
    "rotary",
    "colours",
    "boxes",
    "custom",
)
_LOWERINGS: dict[str, Callable[[Call], Outcome]] = {}


@dataclass
class Call:
    """One Top node to be lowered: its operands and the requested results."""

    e: Emitter
    node: Node
    values: list[Value | None]
    tensors: list[Tensor | None]
    outputs: list[Tensor]

    def attr(self, name: str) -> Any:
        """Return an attribute, or its default."""
        return self.node.attrs.get(name, TOP_OPS[self.node.op].attributes[name].default)

    def value(self, i: int = 0) -> Value:
        """Return operand *i* as it is stored."""
        found = self.values[i]
        assert found is not None
        return found

    def has(self, i: int) -> bool:
        """Return whether operand *i* is present."""
        return i < len(self.values) and self.values[i] is not None

    def params(self, i: int = 0) -> QParams | None:
        """Return the parameters of operand *i*."""
        tensor = self.tensors[i]
        return None if tensor is None else tensor.qparams

    def real(self, i: int = 0) -> Value:
        """Return operand *i* as real numbers: floats unchanged, codes as scale * (code - zero point) in float32."""
        value, params = self.value(i), self.params(i)
        if not value.dtype.is_integer:
            return value
        if params is None:
            return self.e.cast(value, "float32")
        scale = params.scale.to(torch.float32)
        zero = self.e.constant(params.zero_point, params.dtype)
        # ONNX wants an axis, though one scale for the tensor has none; 1 is its default
        axis = 1 if params.axis is None else params.axis
        return self.e.op("DequantizeLinear", value, scale, zero, axis=axis, block_size=0)

    def centred(self, i: int = 0) -> Value:
        """Return integer operand *i* less its zero point, as int64."""
        value, params = self.e.cast(self.value(i), "int64"), self.params(i)
        if params is None or not bool(params.zero_point.any()):
            return value
        return self.e.op("Sub", value, params.along(params.zero_point, value.rank))

    def made(self, x: Value, i: int = 0, mode: str = "HalfAwayFromZero") -> Value:
        """Return real numbers in the form of result *i*: in its float format, or as codes."""
        target = self.outputs[i]
        if not target.dtype.is_integer:
            return self.e.cast(x, target.dtype)
        return codes(self.e, x, target.dtype, target.qparams, mode)

    def activated(self, x: Value) -> Value:
        """Apply the fused ReLU that the attributes name."""
        if not self.attr("do_relu"):
            return x
        limit = self.attr("relu_limit")
        # a limit of 0 or less stands for no limit
        return self.e.op("Relu", x) if limit <= 0 else self.e.op("Clip", x, 0.0, float(limit))


def lowers(*names: str) -> Callable[[F], F]:
    """Register the decorated function as the lowering of the Top operators of these names."""

    def register(function: F) -> F:
        _LOWERINGS.update({f"top.{name}": function for name in names})
        return function

    return register


def lowered_ops() -> frozenset[str]:
    """Return the Top operators that have a lowering."""
    for family in FAMILIES:
        # importing a family registers its lowerings; the families import this module, so it cannot import them first
        import_module(f"quantizer.lang.lowering.{family}")
    return frozenset(_LOWERINGS)


def lower(graph: Graph) -> Graph:
    """Return *graph* as a graph of ONNX operators; UnsupportedError names every operator without a lowering."""
    known = lowered_ops()
    if unknown := sorted(graph.operators - known):
        raise UnsupportedError(f"graph {graph.name!r}: nothing computes {', '.join(unknown)}.")
    e = Emitter()
    values = {name: e.bind(tensor) for name, tensor in graph.tensors.items()}
    for node in graph.order:
        outputs = [graph.tensor(name) for name in node.outputs]
        operands = [None if name is None else values[name] for name in node.inputs]
        tensors = [None if name is None else graph.tensor(name) for name in node.inputs]
        values |= dict(zip(node.outputs, placed(e, node, operands, tensors, outputs), strict=True))
    return e.graph(graph.name, graph.inputs, graph.outputs)


def infer(node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """Return the shapes of the results of a node; raises the operator's own error if it has none."""
    if node.op not in lowered_ops():
        raise UnsupportedError(f"nothing computes {node.op}.")
    e = Emitter()
    values = [None if tensor is None else e.bind(tensor) for tensor in inputs]
    return [value.shape for value in placed(e, node, values, list(inputs), list(outputs))]


def placed(
    e: Emitter, node: Node, values: list[Value | None], tensors: list[Tensor | None], outputs: list[Tensor]
) -> list[Value]:
    """Lower one node whose operands exist already, and return its results by name."""
    e.place = node.name
    outcome = _LOWERINGS[node.op](Call(e, node, values, tensors, outputs))
    found = outcome if isinstance(outcome, list) else [outcome]
    results = []
    for value, wanted in zip(found, outputs, strict=True):
        if wanted.name.startswith(f"{node.name}{ABSENT}"):
            # a result that is not used has no tensor in the outer graph
            results.append(value)
            continue
        if value.dtype != wanted.dtype:
            raise QuantizerError(f"{node.op} makes {value.dtype}, {wanted.name!r} is {wanted.dtype}: must be the same.")
        results.append(e.name_result(value, wanted))
    return results
