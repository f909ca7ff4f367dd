"""Finds where two engines differ on a network: each part runs on the same operands, against its enclosure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantizer.conformance.models.bounds import Enclosure, enclosures
from quantizer.conformance.models.integers import judged_integers
from quantizer.core.errors import GraphError, QuantizerError
from quantizer.core.model_findings import Local, ModelFindings, PartFinding, Verdict
from quantizer.ir.graph import Graph
from quantizer.numerics.pinned import pinned
from quantizer.runtime.models.engines import FLOAT, ModelEngine, OwnFloat, Values
from quantizer.runtime.models.parts import Part, Parts, parts_of, with_constant_codes


@dataclass(frozen=True)
class Ran:
    """The results of the engines on a model."""

    parts: Parts
    feeds: Mapping[str, Tensor]
    whole: tuple[Values, Values]
    alone: tuple[Values, Values]
    basis: Values
    """The values of all edges, from which each part ran alone."""


@pinned()
def model_findings(
    graph: Graph, feeds: Mapping[str, Tensor], engines: tuple[ModelEngine, ModelEngine], platform: str
) -> tuple[ModelFindings, Ran]:
    """Return the findings on *graph*, quantized or not, of ONNX operators, with the values from which they follow.

    The engines run the whole model and return every edge. Then every part runs alone on the edge values of the first
    engine that has the model's quantizations. This separates the error of a part from the errors of its operands.
    """
    parts = parts_of(with_constant_codes(graph))
    if not parts.edges:
        raise GraphError(f"graph {graph.name!r}: must have at least one operator.")
    given = dict(feeds)
    whole = [engine.whole(parts, given) for engine in engines]
    first = next((values for engine, values in zip(engines, whole, strict=True) if engine.name != FLOAT), {})
    missing = not all(name in first for name in parts.edges)
    # an engine that fuses nodes does not show every edge: our own float run fills the gaps
    basis = {**given, **(OwnFloat().whole(parts, given) if missing else {}), **first}
    alone = [engine.alone(parts, basis) for engine in engines]
    ran = Ran(parts, feeds, (whole[0], whole[1]), (alone[0], alone[1]), basis)
    is_float = FLOAT in (engines[0].name, engines[1].name)
    found = tuple(finding for part in parts.parts for finding in _of_part(part, ran, engines, is_float=is_float))
    names = (engines[0].name, engines[1].name)
    return ModelFindings(graph.name, platform, names, is_float, found), ran


def _of_part(part: Part, ran: Ran, engines: tuple[ModelEngine, ModelEngine], *, is_float: bool) -> list[PartFinding]:
    graph = ran.parts.graph
    enclosed = enclosures(part, graph, {name: ran.basis[name] for name in part.operands})
    reason = enclosed if isinstance(enclosed, str) else ""
    arrived = all(_equal(name, ran) for name in part.operands)
    found = []
    for edge in part.results:
        enclosure = None if isinstance(enclosed, str) else enclosed[edge]
        a, b = (values.get(edge) for values in ran.whole)
        differ, apart = (0, 0.0) if a is None or b is None else _difference(a, b, enclosure if is_float else None)
        one, other = (values.get(edge) for values in ran.alone)
        alone = 0 if one is None or other is None else _difference(one, other, None)[0]
        judged = tuple(
            _local(engine, part, values.get(edge), enclosure, (edge, ran.basis))
            for engine, values in zip(engines, ran.alone, strict=True)
            if engine.name != FLOAT
        )
        dtype = graph.tensor(edge).dtype
        found.append(
            PartFinding(
                part.name,
                part.op,
                edge,
                tuple(ran.basis[edge].shape),
                bool(enclosure and enclosure.quantized) or (dtype.bits <= 16 and dtype.is_integer),
                arrived,
                differ,
                apart,
                alone,
                judged,
                reason,
            )
        )
    return found


def _local(
    engine: ModelEngine, part: Part, values: Tensor | None, enclosure: Enclosure | None, read: tuple[str, Values]
) -> Local:
    """Judge one result of an engine; *read*: the edge, and the values of all edges on which the parts ran."""
    how = engine.how(part)
    if values is None:
        return Local(engine.name, "not shown", how=how)
    judged = None if enclosure is None else enclosure.outside(values)
    executor = engine.integers(part)
    if executor is not None:
        edge, basis = read
        by_platform = judged_integers(executor, {name: basis[name] for name in part.operands}, edge, values)
        if by_platform is not None:
            # the platform's declarations decide; the enclosure gives the error in steps
            judged = replace(by_platform, error=by_platform.error if judged is None else judged.error)
    if judged is None:
        return Local(engine.name, "inconclusive", how=how)
    verdict: Verdict = "outside" if judged.outside else "inside"
    return Local(engine.name, verdict, judged.outside, judged.error, judged.ratio, judged.worst, how)


def _equal(name: str, ran: Ran) -> bool:
    """Return whether both engines had equal values at an edge of the whole model. Fed inputs are always equal."""
    if name in ran.feeds:
        return True
    a, b = (values.get(name) for values in ran.whole)
    return a is None or b is None or _difference(a, b, None)[0] == 0


def _difference(a: Tensor, b: Tensor, enclosure: Enclosure | None) -> tuple[int, float]:
    """Return how many elements differ, and the largest difference.

    With the enclosure of a quantized result, real numbers are measured in steps of the codes.
    """
    one, other = a.double(), b.double()
    if enclosure is not None and enclosure.quantized is not None:
        grid = enclosure.quantized
        one, other = (
            values / grid.scale + grid.zero if kept.is_floating_point() else values
            for values, kept in ((one, a), (other, b))
        )
    if one.shape != other.shape:
        return max(one.numel(), other.numel()), float("inf")
    same = (one == other) | (one.isnan() & other.isnan())
    distance = torch.where(same, 0.0, (one - other).abs()).nan_to_num(nan=float("inf"))
    return int((~same).sum()), float(distance.max()) if distance.numel() else 0.0


def worth_cutting(findings: ModelFindings, most: int) -> Sequence[str]:
    """Return the parts to cut out: the first where engines differ, then those outside enclosures, worst first."""
    first = [findings.first.name] if findings.first is not None and not findings.float_edges else []
    blamed = sorted(findings.outside, key=lambda part: -max(local.ratio for local in part.locals))
    return list(dict.fromkeys([*first, *(part.name for part in blamed)]))[:most]


def cut_out(name: str, ran: Ran) -> tuple[Graph, dict[str, Tensor]]:
    """Return a part as a separate graph, and its operands."""
    part = next((part for part in ran.parts.parts if part.name == name), None)
    if part is None:
        raise QuantizerError(f"{name!r}: no part of the model.")
    return ran.parts.cut(part, ran.basis), {edge: ran.basis[edge] for edge in part.operands}
