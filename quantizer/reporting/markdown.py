"""A run as GitHub markdown: what failed, the worst items, coverage by operator and check, holes, known failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quantizer.core.record import Record
from quantizer.core.verdict import ITEM_CHECKS
from quantizer.reporting.figures import NOTHING, ratio_text
from quantizer.reporting.tables import Column, Section, capped
from quantizer.reporting.tally import (
    CASES,
    Standing,
    check_order,
    coverage_holes,
    failing_checks,
    standing,
    totals,
)
from quantizer.reporting.terminal import totals_lines, worst_items

MAX_BYTES = 1_000_000
"""Below what GitHub accepts as a job summary (1 MiB)."""


def render(records: Iterable[Record], *, limit: int = 20, max_bytes: int = MAX_BYTES) -> str:
    """Return the report of a run, at most *limit* worst items and *max_bytes*; what was cut is said at its head."""
    everything = sorted(records, key=lambda record: record.id)
    if not everything:
        return "## Conformance\n\nNothing ran.\n"
    headline = ["## Conformance", ""]
    headline += [f"- {line}" for line in totals_lines(totals(everything))]
    return capped(headline, _sections(everything, limit), max_bytes)


def _sections(records: list[Record], limit: int) -> list[Section]:
    worst = worst_items(records)
    shown = replace(worst, rows=worst.rows[:limit])
    if len(worst.rows) > limit:
        shown = replace(shown, note=f"The first {limit:,} of {len(worst.rows):,}, worst first.")
    return [
        _items("Failures", records, "failed"),
        shown,
        coverage_table(records),
        _holes(records),
        _items("Known failures", records, "known"),
    ]


def _items(title: str, records: Iterable[Record], wanted: Standing) -> Section:
    columns = (Column("item", code=True), Column("checks", code=True), Column("failure", code=True))
    rows = tuple(
        (record.id, failing_text(record) or record.outcome, record.failure)
        for record in records
        if standing(record) == wanted
    )
    return Section(title, columns, rows)


def failing_text(record: Record) -> str:
    """Write the checks that failed with their worst ratios, `arithmetic 2.00, tiled inf`."""
    return ", ".join(f"{name} {ratio_text(ratio)}" for name, ratio in failing_checks(record))


def coverage_table(records: Iterable[Record]) -> Section:
    """Return operator x check with the counts of pass, fail and hole; item checks count items, the others cases."""
    counts: dict[str, dict[str, list[int]]] = {}
    for record in records:
        cells = counts.setdefault(record.op, {})
        for name, check in record.checks.items():
            _add(cells, name, check.passed, check.failed, check.holes)
        if record.kind != CASES and record.kind not in record.checks:
            how = standing(record)
            _add(cells, record.kind, int(how == "passed"), int(how == "failed"), int(how == "skipped"))
    names = sorted({name for cells in counts.values() for name in cells}, key=check_order)
    columns = (Column("op", code=True), *(Column(_heading(name), right=True) for name in names))
    rows = tuple((op, *(_triple(counts[op].get(name)) for name in names)) for op in sorted(counts))
    return Section(
        "Coverage",
        columns,
        rows,
        note="Passed / failed / holes, in cases; one number where nothing failed or is missing. "
        f"Mistrusted and overflow cases are in none. {', '.join(ITEM_CHECKS)}: in items.",
    )


def _heading(name: str) -> str:
    """Return a check's name as it may head a column: names of plugins are not to be trusted with markup."""
    return "".join(c if c.isalnum() or c in "_-." else "?" for c in name)[:40]


def _add(cells: dict[str, list[int]], name: str, *counts: int) -> None:
    cell = cells.setdefault(name, [0, 0, 0])
    for i, count in enumerate(counts):
        cell[i] += count


def _triple(counts: list[int] | None) -> str:
    if counts is None:
        return NOTHING
    return f"{counts[0]:,}" if not any(counts[1:]) else " / ".join(f"{count:,}" for count in counts)


def _holes(records: Iterable[Record]) -> Section:
    columns = (
        Column("items", right=True),
        Column("check", code=True),
        Column("reason", code=True),
        Column("for example", code=True),
    )
    rows = tuple((f"{len(hole.items):,}", hole.check, hole.reason, hole.items[0]) for hole in coverage_holes(records))
    return Section("Holes", columns, rows)
