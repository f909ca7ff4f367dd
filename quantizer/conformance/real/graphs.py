"""Runs graphs of a few nodes under reported bugs that need two nodes: each is a wrong rewrite of one of the graphs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from quantizer.conformance.fusion.cases import build, cases
from quantizer.conformance.fusion.judging import CHECK, Composed, composed, judge_rewrite
from quantizer.conformance.fusion.planted import PLANTS, Plant
from quantizer.conformance.fusion.rewrites import own_rewrites
from quantizer.conformance.real.reports import Report
from quantizer.conformance.real.run import TWINS, Outcome
from quantizer.core.errors import CaseError, QuantizerError
from quantizer.core.graph_spec import shipped_graphs
from quantizer.core.rooms import graph_platform
from quantizer.core.wording import suggestion
from quantizer.ir.graph import Graph

CASES = 16
"""Cases of each form of a graph. Engines rewrite under narrow conditions, which fewer cases may not meet."""


@functools.cache
def _plants() -> Mapping[str, Plant]:
    return {plant.name: plant for plant in PLANTS}


def plant_of(report: Report) -> Plant:
    """Return the wrong rewrite that a report names; CaseError if there is none."""
    known = _plants()
    if report.rewrite not in known:
        raise CaseError(
            f"{report.ref}: no rewrite {report.rewrite!r}.{suggestion(report.rewrite, sorted(known), 'Known')}"
        )
    return known[report.rewrite]


def rewritten(reports: Iterable[Report]) -> list[Outcome]:
    """Return the outcome of each report that names a rewrite: graphs are rewritten until their codes change."""
    runs: dict[str, list[Composed]] = {}
    found = []
    for report in reports:
        if report.rewrite:
            plant = plant_of(report)
            if plant.graph not in runs:
                spec = shipped_graphs()[plant.graph]
                runs[plant.graph] = [composed(build(spec, case), graph_platform()) for case in cases(spec, CASES)]
            found.append(_outcome(report, plant, runs[plant.graph]))
    return found


def _outcome(report: Report, plant: Plant, runs: Iterable[Composed]) -> Outcome:
    rights = own_rewrites(shipped_graphs()[plant.graph])
    met, alarm = 0, ""
    for own in runs:
        if not _concerns(plant, own.built.graph):
            continue
        met += 1
        if met <= TWINS:
            verdicts = {name: judge_rewrite(own, right) for name, right in rights.items()}
            alarm = alarm or next((f"{n}: {v.reason}" for n, v in verdicts.items() if v.failing), "")
        # a failure without a worst element says that the rewritten graph does not run, not that codes changed
        if judge_rewrite(own, plant.rewrite).worst is not None:
            return Outcome(report.ref, plant.graph, met, 1, CHECK, graph_platform(), alarm)
    return Outcome(report.ref, plant.graph, met, 0, twin=alarm)


def _concerns(plant: Plant, graph: Graph) -> bool:
    """Return whether a rewrite finds its nodes in *graph*, and its condition holds there."""
    try:
        return plant.rewrite(graph) is not graph
    except QuantizerError:
        return False
