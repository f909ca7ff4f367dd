"""The check of a model as lines for a terminal, and as one HTML page without network or script."""

from __future__ import annotations

import math

from tabulate import tabulate

from quantizer.core.model_findings import Local, ModelFindings, PartFinding
from quantizer.reporting.figures import counted, printable
from quantizer.reporting.templating import templates

COLUMNS = ("node", "operator", "edge", "differ", "by", "differ alone")
LEGEND = (
    "differ: elements that differ in the run of the whole model, and by how much; differ alone: on equal operands.",
    "Each engine: its largest distance from the exact result, in brackets as a multiple of what is allowed.",
)
"""What the columns mean."""
SHOWN = 12
"""The number of rows of the terminal's table."""


def model_lines(findings: ModelFindings) -> list[str]:
    """Return the terminal's text: first difference of the engines, which one is wrong, the most important parts."""
    chosen = [part for part in findings.parts if part.blamed or part is findings.first]
    # quantizations alone are listed only if there is nothing else
    operators = [part for part in findings.parts if part.op != "QuantizeLinear"]
    worst = sorted(
        operators or findings.parts, key=lambda part: -max((local.ratio for local in part.locals), default=0.0)
    )
    # a dict, because a part may be both chosen and among the worst
    rows = list({(p.name, p.edge): p for p in (*chosen, *worst)}.values())[: max(SHOWN, len(chosen))]
    headers = [*COLUMNS, *(f"{local.engine}" for local in (rows[0].locals if rows else ()))]
    table = tabulate([row(part) for part in rows], headers=headers, disable_numparse=True)
    return [table, *LEGEND, "", *(printable(line) for line in summary(findings))]


def summary(findings: ModelFindings) -> list[str]:
    """Return the sentences that say where the engines differ, and which one is wrong."""
    a, b = findings.engines
    first = findings.first
    if findings.float_edges:
        other = b if a == "float" else a
        stepped = [part for part in findings.parts if part.quantized]
        differ = max((part.apart for part in stepped or findings.parts), default=0.0)
        unit = " steps" if stepped else ""  # a float model has no codes
        lines = [f"{other} is at most {differ:.4g}{unit} from the float model, over {len(findings.parts)} edges."]
    elif first is None:
        differing = sum(part.differ > 0 for part in findings.parts)
        lines = [
            f"{a} and {b} are equal at all {len(findings.parts)} edges."
            if not differing
            else f"{differing} edges differ."
        ]
    else:
        inherited = sum(part.differ > 0 and not part.parts_here for part in findings.parts)
        lines = [
            f"{a} and {b} first differ at {first.name} ({first.op}): "
            f"{counted(first.differ, 'element')} by up to {_by(first)}. Nodes that differ on equal operands: "
            f"{sum(p.parts_here for p in findings.parts)}; that inherit a difference: {inherited}."
        ]
    for part in findings.outside:
        who = ", ".join(
            f"{local.engine} by {local.error:.4g}{' steps' if part.quantized else ''} "
            f"({counted(local.outside, 'element')}, {local.ratio:.4g} times what is allowed)"
            for local in part.locals
            if local.verdict == "outside"
        )
        lines.append(f"outside the enclosure of {part.name} ({part.op}): {who}.")
    if not findings.outside:
        judged = sum(not part.reason for part in findings.parts)
        lines.append(f"no engine lies outside an enclosure: {judged} of {len(findings.parts)} edges were judged.")
    for reason in sorted({part.reason for part in findings.inconclusive}):
        count = sum(part.reason == reason for part in findings.parts)
        lines.append(f"not judged: {counted(count, 'edge')}: {reason}.")
    return [*lines, *(f"cut out: {folder}" for folder in findings.cuts)]


def row(part: PartFinding) -> list[str]:
    """Return the cells of one part."""
    by = _by(part) if part.differ else ""
    return [
        printable(part.name),
        part.op,
        printable(part.edge),
        str(part.differ or ""),
        by,
        str(part.alone or ""),
        *(_cell(local, part) for local in part.locals),
    ]


def model_page(findings: ModelFindings) -> str:
    """Return the whole page."""
    engines = [local.engine for local in findings.parts[0].locals] if findings.parts else []
    rows = [
        {
            "cells": row(part),
            "shape": list(part.shape),
            "tone": _tone(part),
            "here": part.parts_here,
            "how": "; ".join(f"{local.engine} in float32: {local.how}" for local in part.locals if local.how),
            "reason": part.reason,
            "bar": _bar(part),
        }
        for part in findings.parts
    ]
    return (
        templates()
        .get_template("model.html")
        .render(
            title=f"{findings.model}: {findings.engines[0]} and {findings.engines[1]}",
            platform=findings.platform,
            sentences=summary(findings),
            columns=[*COLUMNS, *engines],
            legend=LEGEND,
            rows=rows,
        )
    )


def _tone(part: PartFinding) -> str:
    if part.blamed:
        return "failed"
    return "known" if part.parts_here else "skipped" if part.reason else "passed"


def _bar(part: PartFinding) -> int:
    """Return the largest ratio as a percentage of the allowed error, at most 100."""
    ratio = max((local.ratio for local in part.locals), default=0.0)
    return 100 if not math.isfinite(ratio) else min(100, round(100 * ratio))


def _by(part: PartFinding) -> str:
    return f"{part.apart:.4g} steps" if part.quantized else f"{part.apart:.4g}"


def _cell(local: Local, part: PartFinding) -> str:
    if local.verdict not in ("inside", "outside"):
        return local.verdict
    steps = " steps" if part.quantized else ""
    return f"{local.verdict} {local.error:.3g}{steps} ({local.ratio:.3g})"
