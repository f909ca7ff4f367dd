"""A run as GitHub markdown: what failed, the worst items, coverage, gaps, known failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from quantizer.core.facts import Facts
from quantizer.core.record import Record
from quantizer.reporting.coverage import coverage_table, gap_table, platform_table
from quantizer.reporting.exceptions import exceptions, exceptions_table
from quantizer.reporting.figures import printable, ratio_text
from quantizer.reporting.tables import MAX_BYTES, Column, Section, capped
from quantizer.reporting.tally import Standing, coverage_gaps, failing_checks, standing, totals
from quantizer.reporting.terminal import left_out_lines, totals_lines, worst_items

LINE = 200
"""The largest number of characters of a line about what is not judged."""


def render(
    records: Iterable[Record],
    *,
    facts: Facts | None = None,
    kills: Mapping[str, tuple[int, int]] | None = None,
    as_of: str = "",
    limit: int = 20,
    max_bytes: int = MAX_BYTES,
) -> str:
    """Return the report of a run, with at most *limit* worst items and *max_bytes*; its head says what was cut.

    *facts*: the facts of the run. *kills*: operator -> (faults killed, faults with an effect). *as_of*: the reference
    day for ages of exceptions; by default the day of the run's commit.
    """
    everything = sorted(records, key=lambda record: record.id)
    if not everything:
        return "## Conformance\n\nNothing ran.\n"
    headline = ["## Conformance", ""]
    headline += [f"- {line}" for line in totals_lines(totals(everything))]
    headline += [f"- {line}" for line in left_out_lines(everything, limit=limit, width=LINE)]
    headline += [f"- {line}" for line in (*_facts_lines(facts), *kill_lines(kills))]
    day = as_of or (facts.tree.date if facts and facts.tree else "")
    declared = exceptions_table(exceptions(everything, facts, day), day)
    return capped(headline, [*_sections(everything, limit), declared], max_bytes)


def _facts_lines(facts: Facts | None) -> list[str]:
    if facts is None:
        return []
    packages = ", ".join(f"{name} {version}" for name, version in facts.packages.items())
    commit = f", commit {facts.tree.commit[:12]}" + ("" if facts.tree.clean else " with changes") if facts.tree else ""
    part = f"; a part: {printable(' '.join(facts.selection))}" if facts.selection else ""
    return [
        f"quantizer {facts.quantizer}, engine {facts.under_test}, profile {facts.profile}, {packages}{commit}{part}"
    ]


def kill_lines(kills: Mapping[str, tuple[int, int]] | None) -> list[str]:
    """Return one line on how many faults were found."""
    if not kills:
        return []
    killed, planted = (sum(pair[side] for pair in kills.values()) for side in (0, 1))
    return [f"faults killed: {killed:,} of {planted:,}"]


def _sections(records: list[Record], limit: int) -> list[Section]:
    worst = worst_items(records)
    shown = replace(worst, rows=worst.rows[:limit])
    if len(worst.rows) > limit:
        shown = replace(shown, note=f"The first {limit:,} of {len(worst.rows):,}, worst first.")
    return [
        items_table("Failures", records, "failed"),
        shown,
        coverage_table(records),
        platform_table(records),
        gap_table(records),
        reasons_table(records),
        items_table("Known failures", records, "known"),
    ]


def items_table(title: str, records: Iterable[Record], wanted: Standing) -> Section:
    """Return the items with status *wanted* and their failed checks."""
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


def reasons_table(records: Iterable[Record]) -> Section:
    """Return the reasons of gaps, the most common first."""
    columns = (
        Column("items", right=True),
        Column("check", code=True),
        Column("reason", code=True),
        Column("for example", code=True),
    )
    rows = tuple((f"{len(gap.items):,}", gap.check, gap.reason, gap.items[0]) for gap in coverage_gaps(records))
    return Section("Reasons of gaps", columns, rows)
