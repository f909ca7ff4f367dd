"""`check_graph`: judges every node of a given graph as a case with the graph's shapes and attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quantizer.conformance.failures.message import headline
from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, Range
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import Library
from quantizer.core.shapes import variables
from quantizer.core.spec import Spec
from quantizer.core.verdict import EVERY, Verdict, inconclusive
from quantizer.ir.graph import Graph, Node
from quantizer.lang.export import to_registry
from quantizer.lang.graph import Graph as Built
from quantizer.runtime.executor import execute
from quantizer.runtime.onnx.registry_form import registry_form


@dataclass(frozen=True)
class NodeVerdicts:
    """The verdicts of the checks on one case of one node."""

    node: str
    op: str
    case: Case | None
    """None if the platform does not run the operator. Then there is one inconclusive verdict."""
    verdicts: tuple[Verdict, ...]

    @property
    def failing(self) -> bool:
        """True if a check failed."""
        return any(verdict.failing for verdict in self.verdicts)

    def __str__(self) -> str:
        """One line: the node, the data set, and the first failure or the counts of verdicts."""
        data = f" on {self.case.data.set}" if self.case else ""
        wrong = next((headline(verdict) for verdict in self.verdicts if verdict.failing), "")
        counts = Counter(verdict.status for verdict in self.verdicts)
        return f"{self.node} ({self.op}{data}): {wrong or ', '.join(f'{n} {status}' for status, n in counts.items())}"


def check_graph(
    graph: Built | Graph,
    *,
    scheme: str = "w8a8",
    platform: str = "ideal",
    inputs: Mapping[str, Tensor] | None = None,
    data: Sequence[str] = (),
    seed: int = 0,
    checks: Sequence[str] = EVERY,
    session: Session | None = None,
) -> list[NodeVerdicts]:
    """Judge every node of *graph* in node order, under a scheme on a platform: one case per data set of its spec.

    *graph*: built by hand, or of Top's, ONNX's or the registry's operators. An operator without weights is judged under
    the scheme's activation part. *inputs*: values by name; a run on them gives the ranges of activations, which are
    drawn otherwise. *data*: only these data sets. *session*: its engine is judged; None: the built-in functions.

    Raises SpecError for an unknown scheme or platform, UnsupportedError naming every node that has no spec.
    """
    opened = open_session(Options(Path.cwd())) if session is None else session
    library = opened.library
    library.scheme(scheme), library.platform(platform)
    form = _registry_graph(graph, library)
    ranges = {} if inputs is None else _ranges(form, inputs, library)
    found = []
    for node in form.order:
        spec = library.spec(node.op)
        target = _target(library, spec, scheme, platform)
        if target is None:
            reason = f"platform {platform!r} does not run {node.op} under {scheme!r}"
            found.append(NodeVerdicts(node.name, node.op, None, (inconclusive("engine", reason),)))
            continue
        for case in _cases(form, node, target, ranges, data, seed):
            verdicts = judge(Trial(target, case, opened.engine), checks)
            found.append(NodeVerdicts(node.name, node.op, case, tuple(verdicts)))
    return found


def _registry_graph(graph: Built | Graph, library: Library) -> Graph:
    if isinstance(graph, Built) or any(op.startswith("top.") for op in graph.operators):
        return to_registry(graph)
    return graph if graph.operators <= library.specs.keys() else registry_form(graph)


def _target(library: Library, spec: Spec, scheme: str, platform: str) -> Target | None:
    """Return the target of a node: the scheme, or its activation part for an operator without weights."""
    asked, where = library.scheme(scheme), library.platform(platform)
    legal = library.schemes_for(spec, where)
    for name in legal:
        own = library.scheme(name)
        if own.activation == asked.activation and (own.weight == asked.weight or not spec.has_weights):
            return Target(spec, own, where)
    return None


def _ranges(graph: Graph, inputs: Mapping[str, Tensor], library: Library) -> dict[str, Range]:
    """Return the smallest and the largest value of every tensor that a run on *inputs* makes."""
    values = execute(graph, inputs, library.specs).values
    finite = {name: v[torch.isfinite(v)] for name, v in values.items() if v.is_floating_point()}
    return {name: (float(v.min()), float(v.max())) for name, v in finite.items() if v.numel()}


def _cases(
    graph: Graph, node: Node, target: Target, ranges: Mapping[str, Range], data: Sequence[str], seed: int
) -> Iterator[Case]:
    spec = target.spec
    operands = {k: str(n) for k, n in zip(spec.inputs, node.inputs, strict=False) if n is not None}
    shapes = {key_: graph.tensor(name).shape for key_, name in operands.items()}
    bound = variables(spec, shapes, node.attrs)
    chosen = [name for name in spec.data if not data or name in data]
    if not chosen:
        raise UnsupportedError(f"data={list(data)}: {spec.op} has none of these; it has {', '.join(spec.data)}.")
    named = {**operands, **dict(zip(spec.outputs, node.outputs, strict=True))}
    own = {key_: name for key_, name in named.items() if key_ in (*spec.activations, *spec.outputs)}
    given = {key_: ranges[name] for key_, name in own.items() if name in ranges}
    for name in chosen:
        chooser = HashChoices(key(seed, target.id, node.name, name), {})
        yield complete(target, bound, list(shapes), name, key(seed, node.name) & 0xFFFFFFFF, chooser, given or None)
