"""Runs a graph: its nodes in order, each on views of the tensors in its operator's own axis order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quantizer.core.case import AxisOrder
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platforms import computed_activation
from quantizer.core.shapes import tensor_shapes
from quantizer.core.spec import Spec
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.activations import activate, activate_codes
from quantizer.numerics.batched import trials_of
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import REGISTRY, Place


@dataclass(frozen=True)
class Result:
    """Results of a run: the graph's tensors by name, and the declared stages of each node."""

    values: Mapping[str, Tensor]
    stages: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Results of a node: its tensors in the order of its outputs, and the codes of its declared stages."""

    tensors: tuple[Tensor, ...]
    stages: Mapping[str, Tensor] = field(default_factory=dict)


def to_operator_order(values: Tensor, order: AxisOrder, *, spatial: bool) -> Tensor:
    """Return a view in the operator's order: the channel at axis 1."""
    return values.movedim(-1, 1) if spatial and order == "channels_last" else values


def to_node_order(values: Tensor, order: AxisOrder, *, spatial: bool) -> Tensor:
    """Return a view in the node's order: with channels_last, axis 1 moves to the end."""
    return values.movedim(1, -1) if spatial and order == "channels_last" else values


def execute(
    graph: Graph, feeds: Mapping[str, Tensor], specs: Mapping[str, Spec], platform: str | None = None
) -> Result:
    """Run *graph* on *feeds*; a node with provided parameters runs on codes, every other node in the feeds' float type.

    platform: the platform whose float forwards run, if a plugin has replaced them.

    Raises GraphError for a feed that is missing or of another shape, UnsupportedError for an operator without a
    function, ConstraintError if a node breaks its spec.
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
        # a source: its tensors have values already
        if not node.inputs and all(name in values for name in node.outputs):
            continue
        spec = specs.get(node.op)
        if spec is None:
            raise UnsupportedError(f"node {node.name!r}: operator {node.op!r} has no spec.")
        operands = {key: values[name] for key, name in zip(spec.inputs, node.inputs, strict=False) if name is not None}
        outcome = run_node(spec, node, operands, platform)
        if outcome.stages:
            stages[node.name] = outcome.stages
        values |= zip(node.outputs, outcome.tensors, strict=True)
    return Result(values, stages)


def run_node(spec: Spec, node: Node, operands: Mapping[str, Tensor], platform: Place = None) -> Outcome:
    """Run one node on operands in the node's axis order; the results are in that order too.

    Raises GraphError if the pieces of a result have other types or shapes than the spec says.
    """
    arranged = _arranged(spec, node, operands)
    wanted = _made_shapes(spec, node, arranged)
    provided = node.parameters
    if isinstance(provided, Parameters):
        entry = REGISTRY.entry(spec.op, "quantized", provided.platform.places)
        outcome = entry.function(**arranged, parameters=provided, **node.attrs)
        if not entry.activates:
            # the function leaves the fused activation to us
            outcome = activated(outcome, provided, node.activation)
    else:
        entry = REGISTRY.entry(spec.op, "reference", platform)
        own = {"activation": node.activation} if entry.activates else {}
        outcome = entry.function(**_one_type(arranged), **node.attrs, **own)
        if not entry.activates:
            # channels, along which an activation's own parameters may lie
            axis = 1 if next(iter(spec.outputs.values())).spatial else -1
            outcome = activate(outcome, node.activation, node.activation_attrs, axis)
    return _finished(spec, node, outcome, wanted)


def run_together(
    spec: Spec, node: Node, several: Sequence[Mapping[str, Tensor]], provided: Sequence[Parameters]
) -> list[Outcome]:
    """Run a node on several trials of one structure in one call of a batched function.

    Each trial has its own parameters.

    The operands of all trials have the same shapes.
    """
    arranged = [_arranged(spec, node, operands) for operands in several]
    wanted = _made_shapes(spec, node, arranged[0])
    entry = REGISTRY.entry(spec.op, "quantized", provided[0].platform.places)
    # a new first axis for the trials
    stacked = {name: torch.stack([operands[name] for operands in arranged]) for name in arranged[0]}
    made = trials_of(entry.function(**stacked, parameters=tuple(provided), **node.attrs), len(several))
    if not entry.activates:
        made = [activated(one, own, node.activation) for one, own in zip(made, provided, strict=True)]
    return [_finished(spec, node, one, wanted) for one in made]


def _finished(spec: Spec, node: Node, outcome: object, wanted: tuple[tuple[int, ...], ...]) -> Outcome:
    """Return the results of a function in the node's axis order, and the codes of the stages that it returned."""
    output = next(iter(spec.outputs.values()))
    codes, stages = (outcome.codes, outcome.stages) if isinstance(outcome, Staged) else (outcome, {})
    made = _checked_pieces(spec, codes, wanted) if output.pieces is not None else (_tensor(spec, codes),)
    return Outcome(tuple(to_node_order(values, node.order, spatial=output.spatial) for values in made), stages)


def output_shapes(spec: Spec, node: Node, operands: Mapping[str, Tensor]) -> tuple[tuple[int, ...], ...]:
    """Infer a node's output shapes from its operands' shapes alone, in the operator's order."""
    return _made_shapes(spec, node, _arranged(spec, node, operands))


def _made_shapes(spec: Spec, node: Node, arranged: Mapping[str, Tensor]) -> tuple[tuple[int, ...], ...]:
    return tensor_shapes(spec, {name: tuple(values.shape) for name, values in arranged.items()}, node.attrs)


def _arranged(spec: Spec, node: Node, operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return operands in the operator's order."""
    return {
        name: values.mT
        if name in node.transposed
        else to_operator_order(values, node.order, spatial=spec.inputs[name].spatial)
        for name, values in operands.items()
    }


def _tensor(spec: Spec, made: object) -> Tensor:
    if not isinstance(made, Tensor):
        raise GraphError(f"{spec.op}: a function returned {type(made).__name__}. Return a torch.Tensor.")
    return made


def _checked_pieces(spec: Spec, made: object, wanted: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
    """Return the tensors of a function; GraphError if their number or shapes differ from the spec's."""
    if not isinstance(made, tuple | list):
        raise GraphError(
            f"{spec.op}: a function returned {type(made).__name__}. Return a tuple of {len(wanted)} tensors."
        )
    pieces = tuple(_tensor(spec, piece) for piece in made)
    if (shapes := tuple(tuple(piece.shape) for piece in pieces)) != wanted:
        shown = ", ".join(str(list(shape)) for shape in wanted)
        raise GraphError(f"{spec.op}: pieces of shapes {', '.join(map(str, map(list, shapes)))}, must be {shown}.")
    return pieces


def activated(outcome: Tensor | Staged, provided: Parameters, activation: str) -> Tensor | Staged:
    """Return codes after the fused activation, as the platform computes it."""
    if activation == "none":
        return outcome
    name = computed_activation(provided.platform, activation)
    output = next(iter(provided.outputs.values()))
    if isinstance(outcome, Staged):
        return Staged(activate_codes(outcome.codes, output, name, provided), outcome.stages)
    return activate_codes(outcome, output, name, provided)


def _one_type(operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float operands in the widest type among them."""
    first = next(iter(operands.values()))
    return {name: values.to(first.dtype) if values.is_floating_point() else values for name, values in operands.items()}
