"""Judges an engine whose models are written operator by operator: one model of a graph against a model for each node.

Both are runs of the same engine, and the model of a node gets the codes of the models before it. So both runs must
agree exactly: fusing nodes or reusing their memory must not change a code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.fusion.cases import Built, GraphCase, build
from quantizer.conformance.fusion.judging import CHECK, Judged, compared, declared
from quantizer.conformance.fusion.numbers import with_numbers_of
from quantizer.conformance.models.graph_nodes import NodeTrial
from quantizer.core.errors import EngineError, QuantizerError, RefusedError
from quantizer.core.graph_spec import GraphSpec
from quantizer.core.verdict import Verdict, failure, inconclusive
from quantizer.ir.graph import Node
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.frames import Array
from quantizer.runtime.engines.lowering import Lowered, Wires
from quantizer.runtime.engines.protocol import Asked, Call
from quantizer.runtime.integer import integer_graph, with_integers
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx.kernels import specs

AXES, LAST = 4, (0, 2, 3, 1)
ORDERED = frozenset({"axes", "begin", "end", "perm", "repeats", "shape"})
"""Attributes with numbers that refer to axes, besides `axis` and padding per axis."""


class DeclaredError(RefusedError):
    """A node alone fails as a declared defect of the engine says."""


@dataclass(frozen=True)
class Step:
    """One node as a separate model, and the engine's result for it."""

    node: Node
    lowered: Lowered
    raw: tuple[Array, ...]
    is_last: bool
    """Whether operands of four axes were passed to the engine in channels-last order."""

    def codes(self, raw: tuple[Array, ...]) -> Tensor:
        """Return the codes of a result, in the operator's axis order."""
        found = np.array(self.lowered.result(raw), order="C").astype(np.int64)
        return torch.from_numpy(np.moveaxis(found, -1, 1) if self.is_last else found)


def judge_joined_graph(spec: GraphSpec, case: GraphCase, platform: str, engine: ExternalEngine) -> list[Judged]:
    """Return the comparison of one case; inconclusive where the platform or the engine lacks a node of the graph."""
    try:
        verdict = _judged(with_numbers_of(build(spec, case), platform), platform, engine)
    except DeclaredError as err:
        verdict = Verdict(CHECK, "defect", reason=str(err))
    except RefusedError as err:
        verdict = inconclusive(CHECK, str(err))
    except EngineError as err:
        verdict = failure(CHECK, str(err))
    return [Judged(f"{engine.name} in one model", verdict)]


@pinned()
def _judged(built: Built, platform: str, engine: ExternalEngine) -> Verdict:
    try:
        made = IntegerExecutor(with_integers(integer_graph(built.graph, platform, dict(built.feeds))))
    except QuantizerError as err:
        return inconclusive(CHECK, str(err))
    if made.floats:
        return inconclusive(CHECK, f"{made.floats[0]!r} computes on real numbers")
    try:
        # first in channels-last order; if the engine then keeps some tensor in another order, all as they are
        steps, wires = _wired_steps(made, built, engine, last=True)
    except RefusedError:
        steps, wires = _wired_steps(made, built, engine, last=False)
    named = {step.node.outputs[0]: number for number, step in enumerate(steps)}
    # results that nothing reads are shown, too: an engine could leave out a node without readers
    shown = {name for name in made.graph.outputs if name in named} | named.keys() - made.graph.consumers.keys()
    ends = [number for name, number in named.items() if name in shown]
    results = engine.joined([step.lowered.job for step in steps], wires, ends)
    status = results[len(ends) :]  # the status of the run, which some engines return after the outputs
    ended = [(steps[number], (raw, *status)) for number, raw in zip(ends, results, strict=False)]
    wanted = {step.node.name: step.codes(step.raw) for step, _ in ended}
    return compared(wanted, {step.node.name: step.codes(raw) for step, raw in ended})


def _wired_steps(
    made: IntegerExecutor, built: Built, engine: ExternalEngine, *, last: bool
) -> tuple[list[Step], Wires]:
    """Return the nodes, and which feeds are results of earlier ones; RefusedError if their axis orders do not fit.

    last: operators that take four axes in any order get channels last, as the engine's windowed operators do.
    """
    steps = list(_steps(made, built, engine, last=last))
    return steps, {(number, name): source for number, step in enumerate(steps) for name, source in _wired(step, steps)}


def _steps(made: IntegerExecutor, built: Built, engine: ExternalEngine, *, last: bool) -> Iterator[Step]:
    """Run every node alone on the codes that the engine gave for the nodes before it."""
    values = made.run(dict(built.feeds))
    for node in made.graph.order:
        assert isinstance(node.parameters, Parameters)
        named = zip(specs()[node.op].inputs, node.inputs, strict=False)
        trial = NodeTrial(node, made.graph, {key: values[name].long() for key, name in named if name is not None})
        moved = _channels_last(trial) if last else None
        lowered = engine.lowered(Asked(*(moved or (trial.call, trial.codes)), node.parameters))
        try:
            raw = engine.alone(lowered.job)
        except EngineError as err:
            if (reason := declared(trial, engine)) is not None:
                raise DeclaredError(f"{node.name!r} fails alone: {reason}") from None
            raise RefusedError(f"{node.name!r} fails alone, where its operator is judged: {err}") from None
        step = Step(node, lowered, raw, moved is not None)
        values[node.outputs[0]] = step.codes(raw)
        yield step


def _channels_last(trial: NodeTrial) -> tuple[Call, dict[str, Tensor]] | None:
    """Return the case with its second axis last; None without four axes, or with axes in an attribute or a window."""
    call, codes = trial.call, trial.codes
    is_ordered = any(item.spatial for item in call.spec.inputs.values()) or ORDERED & call.attrs.keys()
    if is_ordered or any(values.dim() != AXES for values in codes.values()):
        return None
    attrs: dict[str, Any] = dict(call.attrs)
    if "axis" in attrs:
        # the new place of an axis is where the permutation takes it from
        attrs["axis"] = LAST.index(attrs["axis"] % AXES)
    if "padding" in attrs:
        attrs["padding"] = tuple(attrs["padding"][axis + end] for end in (0, AXES) for axis in LAST)
    return replace(call, attrs=attrs), {name: values.permute(LAST).contiguous() for name, values in codes.items()}


def _wired(step: Step, steps: list[Step]) -> Iterator[tuple[str, int]]:
    """Yield each feed of a node that is the result of an earlier node, with the number of that node's step.

    RefusedError if the engine keeps the two in different axis orders, which would need a transposition between them.
    """
    made = {other.node.outputs[0]: number for number, other in enumerate(steps)}
    named = dict(zip(specs()[step.node.op].inputs, step.node.inputs, strict=False))
    for name, values in step.lowered.job.feeds.items():
        source = made.get(str(named.get(step.lowered.operands.get(name, name))))
        if source is None:
            continue
        raw, fed = steps[source].raw[0], values
        if step.lowered.reshapes:
            raw, fed = raw.squeeze(), fed.squeeze()
        # equal bytes in equal order: only then is the earlier result itself the operand
        if not np.array_equal(raw, fed):
            raise RefusedError(f"{step.node.name!r} reads {name!r} in another axis order than its maker writes")
        yield name, source
