"""Running a graph: nodes in order, each on views in its operator's own axis order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from quantizer.core.case import AxisOrder
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.activations import activate, activate_codes
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import REGISTRY


@dataclass(frozen=True)
class Result:
    """What a run made: the graph's tensors by name, and the declared stages of each node."""

    values: Mapping[str, Tensor]
    stages: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)


def to_operator_order(values: Tensor, order: AxisOrder, *, spatial: bool) -> Tensor:
    """Return a view in the operator's order: the channel at axis 1."""
    return values.movedim(-1, 1) if spatial and order == "channels_last" else values


def to_node_order(values: Tensor, order: AxisOrder, *, spatial: bool) -> Tensor:
    """Return a view in the node's order: with channels_last, axis 1 moves to the end."""
    return values.movedim(1, -1) if spatial and order == "channels_last" else values


def execute(
    graph: Graph, feeds: Mapping[str, Tensor], specs: Mapping[str, Spec], platform: str | None = None
) -> Result:
    """Run *graph* on *feeds*; a node with handed parameters runs on codes, any other in the feeds' float type.

    platform: whose float forwards run, where a plugin has replaced them there.

    Raises GraphError for a feed that is missing or of another shape, UnsupportedError for an operator without a
    function, ConstraintError where a node breaks its spec.
    """
    values: dict[str, Tensor] = {name: t.data for name, t in graph.tensors.items() if t.data is not None}
    for name in graph.inputs:
        if name not in feeds:
            raise GraphError(f"graph {graph.name!r}: input {name!r} was not fed.")
        wanted = graph.tensor(name).shape
        if tuple(feeds[name].shape) != wanted:
            raise GraphError(
                f"graph {graph.name!r}: input {name!r} has shape {list(feeds[name].shape)}, must be {list(wanted)}."
            )
        values[name] = feeds[name]
    stages: dict[str, Mapping[str, Tensor]] = {}
    for node in graph.order:
        if not node.inputs and all(name in values for name in node.outputs):
            continue
        spec = specs.get(node.op)
        if spec is None:
            raise UnsupportedError(f"node {node.name!r}: operator {node.op!r} has no spec.")
        operands = {key: values[name] for key, name in zip(spec.inputs, node.inputs, strict=False) if name is not None}
        outcome = run_node(spec, node, operands, platform)
        if isinstance(outcome, Staged):
            stages[node.name] = outcome.stages
            outcome = outcome.codes
        values[node.outputs[0]] = outcome
    return Result(values, stages)


def run_node(spec: Spec, node: Node, operands: Mapping[str, Tensor], platform: str | None = None) -> Tensor | Staged:
    """Run one node on operands in the node's axis order; the result is in that order too."""
    arranged = {
        name: values.mT if name in node.transposed
        else to_operator_order(values, node.order, spatial=spec.inputs[name].spatial)
        for name, values in operands.items()
    }  # fmt: skip
    infer_shapes(spec, {name: tuple(values.shape) for name, values in arranged.items()}, node.attrs)
    handed = node.parameters
    if isinstance(handed, Parameters):
        entry = REGISTRY.entry(spec.op, "quantized", handed.platform.platform)
        outcome = entry.function(**arranged, parameters=handed, **node.attrs)
        if node.activation != "none" and not entry.activates:
            outcome = _activated(outcome, handed, node.activation)
    else:
        entry = REGISTRY.entry(spec.op, "reference", platform)
        own = {"activation": node.activation} if entry.activates else {}
        outcome = entry.function(**_one_type(arranged), **node.attrs, **own)
        if not entry.activates:
            axis = 1 if next(iter(spec.outputs.values())).spatial else -1
            outcome = activate(outcome, node.activation, node.activation_attrs, axis)
    spatial = next(iter(spec.outputs.values())).spatial
    if isinstance(outcome, Staged):
        return Staged(to_node_order(outcome.codes, node.order, spatial=spatial), outcome.stages)
    return to_node_order(outcome, node.order, spatial=spatial)


def _activated(outcome: Tensor | Staged, handed: Parameters, activation: str) -> Tensor | Staged:
    """Return codes after the fused activation, as the platform computes it."""
    name, output = handed.platform.activations.get(activation, activation), next(iter(handed.outputs.values()))  # type: ignore[call-overload]
    if isinstance(outcome, Staged):
        return Staged(activate_codes(outcome.codes, output, name, handed), outcome.stages)
    return activate_codes(outcome, output, name, handed)


def _one_type(operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float operands in the widest type among those that are fed."""
    first = next(iter(operands.values()))
    return {name: values.to(first.dtype) if values.is_floating_point() else values for name, values in operands.items()}
