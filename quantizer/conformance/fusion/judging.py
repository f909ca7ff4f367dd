"""Judges a graph of a few nodes: every node alone, the whole graph, rewritten graphs, and engines that fuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.fusion.cases import Built, GraphCase, build
from quantizer.conformance.fusion.graph_defects import known_where_fused
from quantizer.conformance.fusion.rewrites import Rewrite, own_rewrites
from quantizer.conformance.judging.known_defects import known_defect
from quantizer.conformance.models.bounds import enclosures
from quantizer.conformance.models.graph_nodes import NodeTrial
from quantizer.core.errors import EngineError, QuantizerError
from quantizer.core.graph_spec import GraphSpec
from quantizer.core.rooms import Engine
from quantizer.core.verdict import Verdict, Worst, failure, inconclusive, passed
from quantizer.ir.graph import Graph
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.runtime.engines.catalogue import Chosen, chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.integer import integer_graph, with_integers
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.models.engines import OwnIntegers, Session, Values
from quantizer.runtime.models.parts import DEQUANTIZE, Part, Parts, parts_of, with_constant_codes
from quantizer.runtime.onnx.kernels import specs

CHECK = "fusion"
OF_ENGINES = ("engine", "arithmetic")
"""Checks that show defects of engines: of engines that have their own platform, and of other engines."""
WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")
"""Operators of ONNX whose third operand is added to sums of products."""
Codes = Mapping[str, Tensor]
Judge = Callable[[GraphSpec, GraphCase, str], list["Judged"]]
"""Returns the comparisons of a case on a platform."""


def home(entry: Engine) -> str:
    """Return the platform on which a real system runs whole graphs: the first that it computes."""
    return next(iter(entry.variant_of_platform))


@dataclass(frozen=True)
class Judged:
    """One comparison: of a node, the whole graph, a rewrite or an engine."""

    what: str
    verdict: Verdict

    def __str__(self) -> str:
        """The comparison and its result."""
        return f"{self.what}: {self.verdict.status}{f', {self.verdict.reason}' if self.verdict.reason else ''}"


@dataclass(frozen=True)
class Composed:
    """The reference run of a graph on one platform: it runs each node separately, in order."""

    built: Built
    parts: Parts
    edges: Values
    platform: str

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The codes of the graph's outputs."""
        return {name: self.edges[name] for name in self.built.graph.outputs}


@pinned()
def composed(built: Built, platform: str) -> Composed:
    """Return our run of the graph, part by part."""
    parts = parts_of(built.graph)
    return Composed(built, parts, OwnIntegers(platform).whole(parts, dict(built.feeds)), platform)


def judge_graph(
    spec: GraphSpec,
    case: GraphCase,
    platform: str,
    engine: Session | None = None,
    optimized: Session | None = None,
    rewrites: Mapping[str, Rewrite] | None = None,
) -> list[Judged]:
    """Return all comparisons of one case on one platform.

    *engine*, *optimized*: a real system without and with its optimizations, on the platform that it computes.
    *rewrites*: further rewrites by name, in addition to our own.
    """
    own = composed(build(spec, case), platform)
    found = [*_nodes(own)]
    for name, rewrite in {**own_rewrites(spec), **(rewrites or {})}.items():
        found.append(Judged(name, judge_rewrite(own, rewrite)))
    if engine is not None and optimized is not None:
        found.append(Judged(optimized.name, judge_optimized(own.built, engine, optimized)))
    return found


@pinned()
def _nodes(own: Composed) -> Iterator[Judged]:
    """Yield the verdicts on each node from the codes before it, and on the whole graph against its parts."""
    try:
        made = IntegerExecutor(with_integers(integer_graph(own.built.graph, own.platform, dict(own.built.feeds))))
    except QuantizerError as err:
        yield Judged("the whole graph", inconclusive(CHECK, str(err)))
        return
    for node in made.floats:
        yield Judged(node, inconclusive(CHECK, made.reasons.get(node, "it computes on real numbers")))
    for name, trial in _trials(made, own.built.feeds):
        for check in (arithmetic, accuracy):
            verdict = check(trial)
            if verdict is not None and verdict.status != "inconclusive":
                yield Judged(name, _excused(trial, replace(verdict, check=CHECK), check.__name__))
    names = own.built.graph.outputs
    whole = dict(zip(names, made.forward(dict(own.built.feeds), names), strict=True))
    verdict = compared(own.outputs, whole)
    if verdict.failing and made.floats:
        # Each executor rounds a real result to codes in its own way: as ONNX does, or as the platform does.
        verdict = inconclusive(CHECK, f"{verdict.reason}; {next(iter(made.floats))!r} computes on real numbers")
    yield Judged("the whole graph", verdict)


def _trials(made: IntegerExecutor, feeds: Values) -> Iterator[tuple[str, NodeTrial]]:
    """Yield a trial for each node that computes on codes.

    It holds the codes before the node and the codes that the node computed.
    """
    values = made.run(dict(feeds))
    for node in made.graph.order:
        if isinstance(node.parameters, Parameters):
            named = zip(specs()[node.op].inputs, node.inputs, strict=False)
            trial = NodeTrial(node, made.graph, {k: values[n].to(torch.int64) for k, n in named if n is not None})
            # the codes that the whole run gave are judged: without this, the trial would run the node again
            trial.__dict__["outcome"] = Staged(values[node.outputs[0]].long(), {})
            yield node.name, trial


def _excused(trial: NodeTrial, verdict: Verdict, check: str) -> Verdict:
    """Return *verdict* with the status `defect` if it fails and the platform declares the defect."""
    reason = known_defect(trial, check) if verdict.failing else None
    return verdict if reason is None else replace(verdict, status="defect", reason=reason)


@pinned()
def judge_rewrite(own: Composed, rewrite: Rewrite) -> Verdict:
    """Judge a rewrite of the quantized graph: the built-in functions must give the same codes before and after it."""
    graph = own.built.graph
    try:
        # KeyError: the rewrite removed a tensor that another node reads
        changed = rewrite(graph)
        parts = parts_of(with_constant_codes(changed))
        edges = OwnIntegers(own.platform).whole(parts, dict(own.built.feeds))
        found = {name: edges[name] for name in graph.outputs}
    except (QuantizerError, KeyError) as err:
        return failure(CHECK, f"the rewritten graph does not run: {err}")
    return compared(own.outputs, found)


def judge_optimized(built: Built, engine: Session, optimized: Session) -> Verdict:
    """Judge an optimized run by the plain run: codes are equal where the parts' enclosures allow only one code.

    A part's enclosure is the float64 result on the operands of the plain run, widened by the float32 error. Where an
    engine may round a real bias to steps of the sums, it is widened by half a step as well. If it allows two codes for
    some element, an optimized run may have either code, and later results may differ in any way. A difference there is
    inconclusive.
    """
    parts, names = parts_of(built.graph), list(built.graph.outputs)
    try:
        edges = {**built.feeds, **engine.whole(parts, dict(built.feeds))}
        made = optimized.results(parts.graph, dict(built.feeds), names)
    except EngineError as err:
        return _excused_error(built, engine, failure(CHECK, str(err)))
    undecided: list[str] = []
    for part in parts.parts:
        enclosed = enclosures(part, parts.graph, {name: edges[name] for name in part.operands})
        if isinstance(enclosed, str):
            return inconclusive(CHECK, enclosed)
        for edge, enclosure in enclosed.items():
            # the plain run is judged first: it can be the measure only if it is right
            if outside := enclosure.outside(edges[edge]).outside:
                verdict = failure(CHECK, f"{engine.name}: {outside} elements of {edge!r} are outside their enclosure")
                return _excused_plain(built, engine, edge, verdict)
            widened = replace(enclosure, radius=enclosure.radius + _bias_step(part, parts.graph) / 2)
            if enclosure.quantized is not None and not widened.decided:
                undecided.append(edge)
    wanted = {name: edges[name] for name in names}
    verdict = compared(wanted, made)
    if not verdict.failing:
        return verdict
    # outputs that no undecided element can reach must be equal in any case
    judged = {name: codes for name, codes in wanted.items() if name not in _behind(parts.graph, undecided)}
    # the difference lies only in outputs behind an undecided element
    if undecided and not compared(judged, made).failing:
        return inconclusive(CHECK, f"{undecided[0]!r} has an element for which float32 allows two codes")
    return _excused_optimized(built, engine, optimized, wanted, made, verdict)


def _excused_plain(built: Built, engine: Session, edge: str, verdict: Verdict) -> Verdict:
    """Return a wrong edge of the plain run as the declared defects of the nodes before it; else unchanged."""
    known = _known_edges(built, engine)
    if edge not in _behind(built.graph, known):
        return verdict
    return replace(verdict, status="defect", reason="; ".join(known.values()))


def _excused_error(built: Built, engine: Session, verdict: Verdict) -> Verdict:
    """Return an exception or a crash of the engine as the declared defects that the graph meets; else unchanged."""
    known = _known_edges(built, engine)
    return replace(verdict, status="defect", reason="; ".join(known.values())) if known else verdict


def _known_edges(built: Built, engine: Session) -> dict[str, str]:
    """Return the declared defects of nodes and of fused kernels, by the edge that the node of each writes."""
    system = chosen(engine.name)
    assert system is not None
    fused = known_where_fused(built, system, home(system.entry))
    return {**{built.graph.node(node).outputs[0]: why for node, why in fused.items()}, **_known(built, system)}


def _bias_step(part: Part, graph: Graph) -> float:
    """Return the largest step of the sums to which a real bias is added in *part*; 0 without such a bias."""
    steps = (
        math.prod(_largest_scale(graph, node.inputs[place]) for place in (0, 1))
        for node in part.nodes
        if node.op in WITH_BIAS and len(node.inputs) > 2
    )
    return max(steps, default=0.0)


def _largest_scale(graph: Graph, name: str | None) -> float:
    """Return the largest scale with which a tensor is dequantized; 0 for one that holds no codes."""
    maker = graph.producers.get(str(name))
    scales = graph.tensor(str(maker.inputs[1])).data if maker is not None and maker.op == DEQUANTIZE else None
    return 0.0 if scales is None else float(scales.max())


def _excused_optimized(
    built: Built, engine: Session, optimized: Session, wanted: Codes, made: Codes, verdict: Verdict
) -> Verdict:
    """Return a difference of an optimized run as declared defects if they explain all of it, else unchanged.

    A defect of a node accounts for outputs after the node. If the results of a node are graph outputs, nothing is
    fused across them. A difference that then disappears belongs to a defect of a fused kernel.
    """
    system = chosen(engine.name)
    assert system is not None
    graph, known, fused = built.graph, _known(built, system), known_where_fused(built, system, home(system.entry))
    if fused:
        # an engine cannot fuse across a result that it must give: a defect of a fused kernel disappears
        shown = [*wanted, *(name for node in fused for name in graph.node(node).outputs if name not in wanted)]
        try:
            made = optimized.results(graph, dict(built.feeds), shown)
        except EngineError:
            return verdict
    # what lies behind a defective node is taken from the plain run, and the rest must still agree
    behind = _behind(graph, known)
    rest = compared(wanted, {**made, **{name: wanted[name] for name in behind & wanted.keys()}})
    if rest.failing:
        return replace(rest, reason=f"{rest.reason}; {'; '.join(fused.values())} is not the cause") if fused else rest
    return replace(verdict, status="defect", reason="; ".join({**known, **fused}.values()))


def _behind(graph: Graph, edges: Collection[str]) -> set[str]:
    """Return *edges* and all edges that are computed from them."""
    found = set(edges)
    for node in graph.order:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


@pinned()
def _known(built: Built, system: Chosen) -> dict[str, str]:
    """Return the declared defects that nodes show on these codes, by the edge that each node writes."""
    made = IntegerExecutor(integer_graph(built.graph, home(system.entry), dict(built.feeds)))
    found = {}
    for name, trial in _trials(made, built.feeds):
        if (reason := declared(trial, ExternalEngine(system))) is not None:
            found[made.graph.node(name).outputs[0]] = reason
    return found


def declared(trial: NodeTrial, engine: ExternalEngine) -> str | None:
    """Return the declared defect that *engine* shows on a node's codes, or None."""
    trial.engine = engine
    return next(filter(None, (known_defect(trial, check) for check in OF_ENGINES)), None)


def compared(wanted: Codes, found: Codes) -> Verdict:
    """Return whether all codes are equal, and the first that is not."""
    elements = sum(values.numel() for values in wanted.values())
    for name, values in wanted.items():
        other = found.get(name)
        if other is None or other.shape != values.shape:
            return failure(
                CHECK, f"{name!r}: shape {None if other is None else list(other.shape)}, must be {list(values.shape)}"
            )
        unequal = values.long() != other.long()
        if bool(unequal.any()):
            first = tuple(int(i) for i in unequal.nonzero()[0])
            worst = Worst(name, first, str(int(values[first])), str(int(other[first])), str(int(values[first])))
            got = f"{name!r}{list(first)}: code {int(other[first])}, must be {int(values[first])}"
            count = int(unequal.sum())
            return failure(CHECK, f"{got}; {count} of {values.numel()} differ", worst, elements=elements, failed=count)
    return passed(CHECK, elements=elements)


def explained(spec: GraphSpec, case: GraphCase, platform: str, wrong: Judged, judge: Judge) -> str:
    """Return the text of a failed comparison: what differs, the case, and the smallest case that fails in it."""

    def fails(candidate: GraphCase) -> bool:
        found = judge(spec, candidate, platform)
        return any(item.what == wrong.what and item.verdict.failing for item in found)

    return f"{spec.graph} on {platform}: {wrong}\n  case: {case}\n  smallest: {smallest(spec, case, fails)}"


def smallest(spec: GraphSpec, case: GraphCase, fails: Callable[[GraphCase], bool]) -> GraphCase:
    """Return the smallest case found that still fails: first with fewer nodes, then with smaller sizes."""
    # the graph up to one of its nodes, from the first on; only a quantized result can be an output
    for count in range(1, len(spec.nodes)):
        name = list(spec.nodes)[count - 1]
        inside = name in spec.quantized[case.form]
        candidate = replace(case, nodes=(name,))
        if inside and _holds(fails, candidate):
            case = candidate
            break
    changed = True
    while changed:
        changed = False
        for name, size in case.sizes.items():
            end = spec.dims[name].min
            least = 0 if end is None else int(end(case.sizes))
            # the smallest size, half way to it, and one less: bisection, which ends at a size that no step can lower
            for value in dict.fromkeys((least, (least + size) // 2, size - 1)):
                candidate = replace(case, sizes={**case.sizes, name: value})
                if least <= value < size and _is_legal(spec, candidate) and _holds(fails, candidate):
                    case, changed = candidate, True
                    break
    return case


def _is_legal(spec: GraphSpec, case: GraphCase) -> bool:
    """Return whether every size lies in its domain, whose ends may depend on other sizes."""
    ends = ((size, spec.dims[name].min, spec.dims[name].max) for name, size in case.sizes.items())
    return all(
        (low is None or int(low(case.sizes)) <= size) and (high is None or size <= int(high(case.sizes)))
        for size, low, high in ends
    )


def _holds(fails: Callable[[GraphCase], bool], case: GraphCase) -> bool:
    try:
        return fails(case)
    except (QuantizerError, ValueError, RuntimeError):
        return False
