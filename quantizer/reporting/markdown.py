"""A run as GitHub markdown: what failed, the worst items, coverage, holes, known failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quantizer.core.record import Record
from quantizer.reporting.coverage import coverage_table, hole_table, platform_table
from quantizer.reporting.figures import ratio_text
from quantizer.reporting.tables import Column, Section, capped
from quantizer.reporting.tally import Standing, coverage_holes, failing_checks, standing, totals
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
        platform_table(records),
        hole_table(records),
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


def _holes(records: Iterable[Record]) -> Section:
    columns = (
        Column("items", right=True),
        Column("check", code=True),
        Column("reason", code=True),
        Column("for example", code=True),
    )
    rows = tuple((f"{len(hole.items):,}", hole.check, hole.reason, hole.items[0]) for hole in coverage_holes(records))
    return Section("Reasons of holes", columns, rows)
