"""What a page says about each operator: its rows, its charts and its failing cases."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from quantizer.core.record import Record
from quantizer.reporting import charts
from quantizer.reporting.failing_cases import Drawn
from quantizer.reporting.tally import (
    CASES,
    Row,
    Standing,
    check_order,
    decided,
    is_failing,
    value_rows,
    worst_ratio,
)

SHOWN = 4
"""For a larger run: rows of an operator in addition to failing and changed ones."""
MOST = 200
"""For a larger run: the largest number of rows of a table, and of an operator."""


@dataclass(frozen=True)
class Operator:
    """Everything that the page says about one operator."""

    name: str
    standing: Standing
    rows: tuple[Row, ...]
    targets: int
    """Number of its targets; the page of a large run shows only `rows` of them."""
    checks: tuple[str, ...]
    """The checks that gave a ratio on some target."""
    ratios: Mapping[str, Markup]
    sqnr: Markup
    trend: Markup
    kill_rate: str
    others: tuple[Record, ...]
    failing: tuple[Drawn, ...]

    @property
    def worst(self) -> Row | None:
        """The target with the worst ratio."""
        return self.rows[0] if self.rows else None


def operators_of(
    records: Sequence[Record],
    drawn: Mapping[str, Drawn],
    trends: Mapping[str, Sequence[float | None]],
    kills: Mapping[str, tuple[int, int]],
    urgent: set[str] | None,
) -> list[Operator]:
    """Return the operators that fail, then the others, each in the order of names.

    *urgent*: the items that the page of a large run shows; None shows all, and draws every operator's charts.
    """
    by_op: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_op[record.op].append(record)
    order = sorted(by_op, key=lambda op: (not any(map(is_failing, by_op[op])), op))
    # on the page of a large run, only operators with something to see have charts
    charted = [op for op in order if urgent is None or any(record.id in urgent for record in by_op[op])]
    if urgent is not None:
        charted = charted[:MOST]
    drawing = set(charted)
    return [
        _operator(op, by_op[op], drawn, trends.get(op, ()), kills.get(op), urgent, charted=op in drawing)
        for op in order
    ]


def _operator(
    name: str,
    records: Sequence[Record],
    drawn: Mapping[str, Drawn],
    trend: Sequence[float | None],
    kills: tuple[int, int] | None,
    urgent: set[str] | None,
    *,
    charted: bool,
) -> Operator:
    rows = value_rows(records)
    shown = rows if urgent is None else _shown(rows, urgent)
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for check, found in row.record.checks.items():
            if gave(found) and (found.ratio or found.failed):
                ratios[check].append(worst_ratio(found))
    checks = tuple(sorted(ratios, key=check_order))
    points = [
        (bits, row.record.metrics["sqnr_db"])
        for row in rows
        if charted and "sqnr_db" in row.record.metrics and (bits := _activation_bits(row.record.scheme))
    ]
    how: Standing = "failed" if any(map(is_failing, records)) else "passed"
    return Operator(
        name=name,
        standing=how,
        rows=tuple(shown),
        targets=len(rows),
        checks=checks,
        ratios={check: charts.histogram(ratios[check]) for check in checks if charted},
        sqnr=charts.scatter(points) if points else Markup(""),
        trend=charts.sparkline(trend),
        kill_rate=f"{kills[0]:,} of {kills[1]:,}" if kills else "",
        others=tuple(record for record in records if record.kind != CASES),
        failing=tuple(drawn[row.record.id] for row in shown if row.record.id in drawn),
    )


def _shown(rows: Sequence[Row], urgent: set[str]) -> list[Row]:
    """Return an operator's rows on a large page: the worst few, and at most `MOST` that fail or changed."""
    first = {row.record.id for row in rows[:SHOWN]}
    found = [row for row in rows if row.record.id in urgent or row.record.id in first]
    return found[:MOST]


def gave(check: object) -> bool:
    """Return whether a check gave any verdict for an item."""
    return bool(check and (decided(check) or check.mistrusted))  # type: ignore[attr-defined, arg-type]


def _activation_bits(scheme: str) -> int:
    found = re.search(r"a(\d{1,3})", scheme)
    return int(found.group(1)) if found else 0
