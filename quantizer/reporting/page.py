"""Writes a run as one HTML page, light or dark, that needs no network and is complete without a script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Template

from quantizer.core.facts import Facts
from quantizer.core.record import Record
from quantizer.core.wording import visible
from quantizer.reporting.blame import Since, against, notes
from quantizer.reporting.coverage import coverage_table, gap_table, heading
from quantizer.reporting.diff import Diff
from quantizer.reporting.diff_views import diff_headline, diff_sections
from quantizer.reporting.exceptions import exceptions, exceptions_table
from quantizer.reporting.failing_cases import Drawn, failing_cases
from quantizer.reporting.figures import NOTHING, count_text, counted, lsb_text, printable, ratio_text, share_text
from quantizer.reporting.items import rerun
from quantizer.reporting.markdown import items_table, reasons_table
from quantizer.reporting.page_operators import MOST, gave, operators_of
from quantizer.reporting.tables import Section
from quantizer.reporting.tally import (
    CASES,
    Standing,
    coverage_gaps,
    is_failing,
    standing,
    totals,
    worst_ratio,
)
from quantizer.reporting.templating import templates
from quantizer.reporting.terminal import worst_items

WHOLE = 5_000
"""A page lists up to this many value items. For a larger run it shows failures, changes and the worst, and counts the
rest."""
FIRST = 10
"""The number of failing items that the first screen names."""
WORST = 50
"""The number of rows of the table of worst items; the operators' own tables hold all."""


def render(
    records: Iterable[Record],
    *,
    title: str,
    diff: Diff | None = None,
    failures: Path | None = None,
    trends: Mapping[str, Sequence[float | None]] | None = None,
    kills: Mapping[str, tuple[int, int]] | None = None,
    facts: Facts | None = None,
    as_of: str = "",
    run: str = "",
    sinces: Mapping[str, Since] | None = None,
) -> str:
    """Return the page.

    *failures*: the folder of replay files of the run. *trends*: operator -> worst graded ratio, oldest run first.
    *kills*: operator -> (faults killed, faults with an effect). *facts*: the run's record of its settings.
    *as_of*: the reference day for ages; by default the day of the run's commit. *run*: where it is, for commands.
    *sinces*: operator -> since when it fails.
    For a run of more than `WHOLE` value items the page shows failures, changes and the worst, and counts the rest.
    """
    everything = sorted(records, key=lambda record: record.id)
    drawn = failing_cases(failures, everything, facts, run)
    # all items of a large run would make the page too large for a browser
    whole = sum(record.kind == CASES for record in everything) <= WHOLE
    urgent = None if whole else _urgent(everything, diff)
    operators = operators_of(everything, drawn, trends or {}, kills or {}, urgent)
    ids = {row.record.id for op in operators for row in op.rows} | {r.id for op in operators for r in op.others}
    broken = [record for record in everything if is_failing(record) and record.id in ids]
    worst = worst_items(everything)
    page = _template().render(
        title=title,
        made_by=_made_by(facts),
        broken=[(r.id, _cause(r, drawn.get(r.id))) for r in broken],
        extent=_extent(everything),
        against=against(diff),
        notes=notes(dict.fromkeys(r.op for r in broken[:FIRST]), sinces or {}, facts),
        tiles=_tiles(everything, kills),
        matrix=_matrix(everything),
        whole=whole,
        command=f"quantizer report html {run} --op" if run else "quantizer report html RUN --op",
        operators=operators,
        worst=replace(worst, rows=worst.rows[:WORST]),
        sections=_shortened([items_table("Failures", everything, "failed"), *_sections(everything)], whole=whole),
        known=_first(_exceptions(everything, facts, as_of), whole=whole),
        diff=None if diff is None else _changes(diff, whole=whole),
        rerun=lambda record: rerun(record, facts),
        ids=ids,
        ops={op.name for op in operators},
        cases={case.item for op in operators for case in op.failing},
    )
    # names may come from plugins: invisible characters are shown wherever they occur
    return visible(page)


def _extent(records: Sequence[Record]) -> str:
    """Return a sentence: how many items failed, in how many operators."""
    failing = [record for record in records if is_failing(record)]
    ops = {record.op for record in failing}
    where = (
        f"all of {printable(failing[0].op)}"
        if len(ops) == 1
        else f"in {len(ops):,} of {len({r.op for r in records}):,} operators"
    )
    return f"{len(failing):,} of {counted(len(records), 'item')} failed, {where}."


def _template() -> Template:
    """Return a page's template, with the filters and functions that all pages use."""
    environment = templates()
    environment.filters |= {
        "printable": printable,
        "ratio": ratio_text,
        "lsb": lsb_text,
        "count": count_text,
        "share": share_text,
    }
    environment.globals |= {
        "first": FIRST,
        "NOTHING": NOTHING,
        "cell": lambda record, name: record.checks.get(name),
        "gave": gave,
        "worst_ratio": worst_ratio,
        "standing": standing,
        "worst_standing": _worst_standing,
        "ill": lambda cell: any(map(is_failing, cell)),
    }
    return environment.get_template("report.html")


def _changes(diff: Diff, *, whole: bool) -> dict[str, Any]:
    """Return headline and tables of a comparison, in the form that the template needs."""
    return {"headline": diff_headline(diff), "sections": _shortened(diff_sections(diff), whole=whole)}


def _shortened(sections: Iterable[Section], *, whole: bool) -> list[Section]:
    return [_first(section, whole=whole) for section in sections]


def _made_by(facts: Facts | None) -> str:
    """Return engine, plugins, commit and profile of a run in one line; empty if the run does not say."""
    if facts is None:
        return ""
    found = [f"engine {facts.under_test}"]
    found += [f"plugins {', '.join(plugin.name for plugin in facts.plugins)}"] * bool(facts.plugins)
    if facts.tree:
        changed = "" if facts.tree.clean else ", with changes that no commit holds"
        found.append(f"commit {facts.tree.commit[:12]} of {facts.tree.date}{changed}")
    return printable("; ".join([*found, f"profile {facts.profile}", f"quantizer {facts.quantizer}"]))


def _cause(record: Record, case: Drawn | None) -> str:
    """Return in one line why an item failed: the finding, then the printed element, values and suspect."""
    printed = [line.split(maxsplit=1) for line in case.text.splitlines()] if case else []
    said = [" ".join(pair) for pair in printed if len(pair) == 2 and pair[0] in ("worst", "expected", "got", "suspect")]
    return "; ".join([record.failure or record.outcome, *said])


def _urgent(records: Iterable[Record], diff: Diff | None) -> set[str]:
    """Return the items that a page must show: failures, and items that became worse than in the baseline."""
    everything = [*records]
    found = [record.id for record in everything if is_failing(record)]
    if diff is not None:
        # the most important first, because the list is cut at WHOLE
        found += [change.id for change in (*diff.new_failures, *diff.fixed)]
        found += [change.id for change in diff.lost]
        found += [change.id for change in diff.added] + [change.id for change in diff.grown_otherwise[:MOST]]
    found += [record.id for record in everything if standing(record) != "passed"]
    return set([*dict.fromkeys(found)][:WHOLE])


def _first(section: Section, *, whole: bool) -> Section:
    """Return the first rows of a long table of a large run, with a note that says so."""
    count = len(section.rows)
    if whole or count <= MOST:
        return section
    note = f"The first {MOST:,} of {count:,}; `quantizer report diff` and `show` write all. {section.note}".strip()
    return replace(section, rows=section.rows[:MOST], note=note)


def _sections(records: Sequence[Record]) -> list[Section]:
    return [coverage_table(records), gap_table(records), reasons_table(records)]


def _exceptions(records: Sequence[Record], facts: Facts | None, as_of: str) -> Section:
    day = as_of or (facts.tree.date if facts and facts.tree else "")
    return exceptions_table(exceptions(records, facts, day), day)


def _tiles(records: Sequence[Record], kills: Mapping[str, tuple[int, int]] | None) -> list[tuple[str, str, str]]:
    """Return (label, value, tone) of the summary."""
    sums = totals(records)
    count = {name: sum(standing(record) == name for record in records) for name in ("passed", "failed", "known")}
    defects = sum(check.defects for record in records for check in record.checks.values())
    found = [
        ("items passed", f"{count['passed']:,}", "good"),
        ("items failed", f"{count['failed']:,}", "bad" if count["failed"] else "good"),
        ("cases", f"{sums.cases:,}", ""),
        *([("data sets", f"{sums.data_sets:,}", "")] if sums.data_sets > sums.cases else []),
        ("verdicts", f"{sums.verdicts:,}", ""),
        ("verdicts mistrusted", f"{sums.mistrusted:,}", "warn" if sums.mistrusted else ""),
        ("vacuous elements", share_text(sums.vacuous), ""),
        ("known defects seen", f"{defects + count['known']:,}", ""),
        ("reasons for gaps", f"{len(coverage_gaps(records)):,}", ""),
    ]
    if kills:
        killed, planted = (sum(pair[side] for pair in kills.values()) for side in (0, 1))
        found.append(("faults killed", f"{killed:,} of {planted:,}", "good" if killed == planted else "bad"))
    return found


def _matrix(records: Sequence[Record]) -> dict[str, object]:
    """Return operators x platforms; a cell is the list of its records."""
    cells: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.kind == CASES:
            cells[record.op][record.platform].append(record)
    platforms = sorted({name for row in cells.values() for name in row})
    rows = [(op, [cells[op].get(name, []) for name in platforms]) for op in sorted(cells)]
    return {"platforms": [heading(name) for name in platforms], "rows": rows}


def _worst_standing(records: Sequence[Record]) -> Standing:
    """Return the status of the worst of *records*."""
    order: tuple[Standing, ...] = ("failed", "known", "skipped", "passed")
    return min((standing(record) for record in records), key=order.index)
