"""Cases cut out of a quantized ONNX model: each node with the model's scales, shapes and codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from quantizer.conformance.failures.shrink import shrink
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.model_cases import GIVEN, check_given, cropped, given_of
from quantizer.conformance.setup.session import Session
from quantizer.conformance.stored.fitting import check_case
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import AttrValue, Case, DataRecipe, Given, TilePlan
from quantizer.core.errors import GraphError, QuantizerError, UnsupportedError
from quantizer.core.verdict import EVERY, Verdict
from quantizer.core.wording import suggestion
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import dequantize
from quantizer.runtime.integer import check_declared, float_reasons, has_integers, integer_graph, span
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.models.engines import OwnFloat
from quantizer.runtime.models.parts import DEQUANTIZE, QUANTIZE, Part, Parts, parts_of, with_constant_codes
from quantizer.runtime.onnx.kernels import specs

QLINEAR = ("QLinear", "ConvInteger", "MatMulInteger")
"""Prefixes of the names of operators on codes."""


@dataclass(frozen=True)
class Cut:
    """A node of a model with the quantizations around it, and its case or the reason why there is no case."""

    part: Part
    graph: Graph
    operands: Mapping[str, Tensor]
    case: Case | None
    refusal: str = ""


@pinned()
def cuts_of(graph: Graph, feeds: Mapping[str, Tensor], session: Session, platform: str, node: str = "") -> list[Cut]:
    """Return every quantized node of *graph*, or only the one called *node*, as a case of *platform*.

    *feeds*: values by input. Our float32 run with the model's quantizations gives the codes that each node reads. A
    node has a reason instead of a case if it has no spec or no scheme of the platform, or if the engine does not have
    it.

    Raises GraphError if the model has no quantized node, UnsupportedError with the nearest name for an unknown one.
    """
    parts = parts_of(with_constant_codes(graph))
    chosen = [part for part in parts.parts if _is_quantized(part)]
    if not chosen:
        raise GraphError(f"graph {graph.name!r}: no node is quantized. Give a model with QDQ or QLinear operators.")
    if node:
        names = [part.name for part in chosen]
        if node not in names:
            raise UnsupportedError(f"--node={node}: no quantized node.{suggestion(node, names, 'Known')}")
        chosen = [part for part in chosen if part.name == node]
    edges = {**feeds, **OwnFloat().whole(parts, dict(feeds))}
    return [_cut(parts, part, edges, session, platform) for part in chosen]


def judged_cut(cut: Cut, session: Session) -> tuple[Trial, list[Verdict]]:
    """Return the case of a node, run on the session's engine, and the verdict of each check."""
    assert cut.case is not None
    trial = Trial(_target(session, cut.case), cut.case, session.engine)
    return trial, judge(trial, EVERY)


def smallest(trial: Trial, verdicts: Sequence[Verdict]) -> tuple[Trial, list[Verdict]]:
    """Return the smallest case that fails as *trial* does: the same check fails, with wrong codes or with an error."""
    first = next(verdict for verdict in verdicts if verdict.failing)

    def fails(candidate: Case) -> bool:
        found = judge(Trial(trial.target, candidate, trial.engine), (first.check,))
        return any(v.failing and (v.worst is None) == (first.worst is None) for v in found)

    small = Trial(trial.target, cropped(shrink(trial.target, trial.case, fails)), trial.engine)
    found = judge(small, EVERY)
    return (small, found) if any(verdict.failing for verdict in found) else (trial, [*verdicts])


def _is_quantized(part: Part) -> bool:
    """Return whether a part computes between quantizations. Quantizing or dequantizing alone does not count."""
    if part.core.op in (QUANTIZE, DEQUANTIZE):
        return False
    return part.op.startswith(QLINEAR) or any(node.op in (QUANTIZE, DEQUANTIZE) for node in part.nodes)


def _target(session: Session, case: Case) -> Target:
    library = session.library
    return Target(library.spec(case.op), library.scheme(case.scheme), library.platform(case.platform))


def _cut(parts: Parts, part: Part, edges: Mapping[str, Tensor], session: Session, platform: str) -> Cut:
    graph, operands = parts.cut(part, edges), {name: edges[name] for name in part.operands}
    try:
        case = _case(graph, part, operands, session, platform)
    except QuantizerError as err:
        return Cut(part, graph, operands, None, str(err))
    target = _target(session, case)
    if (lacking := session.engine.supports(target.spec, target.scheme, target.platform)) is not None:
        return Cut(part, graph, operands, None, lacking)
    return Cut(part, graph, operands, case)


def _case(cut: Graph, part: Part, operands: Mapping[str, Tensor], session: Session, platform: str) -> Case:
    """Return the single operator of a part as a case.

    UnsupportedError or GraphError with the reason why that is impossible.
    """
    codes = {name for node in part.nodes if node.op == DEQUANTIZE for name in node.inputs[:1]}
    shaped = {name: values.float() if name in codes else values for name, values in operands.items()}
    form = integer_graph(cut, platform, shaped)
    if not has_integers(form):
        raise UnsupportedError(f"{'; '.join(dict.fromkeys(float_reasons(form).values()))}.")
    computed = [node for node in form.order if isinstance(node.parameters, Parameters)]
    if len(form.nodes) != 1 or len(computed) != 1:
        names = ", ".join(node.op for node in form.order)
        raise UnsupportedError(f"node {part.name!r} ({part.op}): becomes {names}, a case is one operator.")
    values = IntegerExecutor(form).run(dict(operands))
    case = _as_case(computed[0], form, values, platform)
    spec = session.library.spec(case.op)
    check_case(spec, case)
    check_given(case)
    return case


def _as_case(node: Node, form: Graph, values: Mapping[str, Tensor], platform: str) -> Case:
    provided = cast("Parameters", node.parameters)
    spec = specs()[node.op]
    named = {key: name for key, name in zip(spec.inputs, node.inputs, strict=False) if name is not None}
    grids: dict[str, QParams] = {**provided.inputs, **{key: held.params for key, held in provided.constants.items()}}
    if missing := [key for key in named if key not in grids]:
        raise UnsupportedError(f"node {node.name!r} ({node.op}): operand {missing[0]!r} has no codes.")
    given: dict[str, Given] = {}
    ranges = {}
    for key, name in named.items():
        held = provided.constants.get(key)
        own = (values[name] if held is None else held.codes).long()
        given[key] = given_of(grids[key], tuple(own.shape), own)
        # of an activation the whole grid, of a constant its values
        ranges[key] = span(grids[key]) if held is None else _ends(dequantize(own, held.params))
    given["y"] = given_of(provided.outputs["y"], (), None)
    ranges["y"] = span(provided.outputs["y"])
    shapes = {key: given[key].shape for key in named}
    scheme = check_declared(node, form).name
    attrs = cast("Mapping[str, AttrValue]", node.attrs)
    recipe = DataRecipe(GIVEN, 0, given=given)
    return Case(
        node.op, scheme, platform, shapes, attrs, ranges, "channels_first", TilePlan({}), recipe, node.activation
    )


def _ends(values: Tensor) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if values.numel() else (0.0, 0.0)
