"""Terminal summary of a run: worst items, totals, coverage and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from quantizer.core.record import Record
from quantizer.reporting.coverage import compact_table
from quantizer.reporting.figures import (
    NOTHING,
    count_text,
    counted,
    printable,
    ratio_text,
    share_text,
    shortened,
    wrapped,
)
from quantizer.reporting.tables import Column, Rows, Section, text_table
from quantizer.reporting.tally import (
    CASES,
    STANDINGS,
    Gap,
    LeftOut,
    Row,
    Standing,
    Totals,
    coverage_gaps,
    is_failing,
    kind_order,
    left_out,
    standing,
    totals,
    value_rows,
)

_COLUMNS = (
    Column("op", cut="middle", code=True),
    Column("scheme", cut="middle", code=True),
    Column("platform", cut="middle", code=True),
    Column("cases", right=True),
    Column("worst", code=True),
    Column("mistrust", right=True),
    Column("vacuous", right=True),
    Column("gaps", right=True),
    Column("failed", right=True),
)


def render(records: Iterable[Record], *, limit: int = 20, width: int = 100, path: str = "") -> list[str]:
    """Return the lines that sum up a run, at most *limit* of each list; the rest can be read in *path*."""
    everything = list(records)
    if not everything:
        return []
    lines = text_table(worst_items(everything), limit=limit, width=width, path=path)
    lines += [""] * bool(lines)
    lines += [part for line in totals_lines(totals(everything)) for part in wrapped(line, width)]
    lines += _other_failures(everything, limit, width)
    lines += left_out_lines(everything, limit=limit, width=width)
    covered = compact_table(everything)
    if covered.rows:
        lines += ["", "coverage: schemes that passed on each platform, cases that a check left out"]
        lines += text_table(covered, limit=limit, width=width, path=path)
    gaps = coverage_gaps(everything)
    if gaps:
        lines += ["", *_gap_lines(gaps, limit, width)]
    return lines


def worst_items(records: Iterable[Record]) -> Section:
    """Return the table of value items, worst first. With several engines it has a column of engine and level."""
    rows = value_rows(records)
    several = len({_engine(row.record) for row in rows}) > 1
    columns = (*_COLUMNS[:3], Column("engine", cut="middle", code=True), *_COLUMNS[3:]) if several else _COLUMNS
    return Section("Worst items", columns, Rows(rows, partial(_cells, several=several)))


def _engine(record: Record) -> str:
    return f"{record.engine} {record.isa}".strip()


def _cells(row: Row, *, several: bool) -> tuple[str, ...]:
    record = row.record
    return (
        record.op,
        record.scheme or NOTHING,
        record.platform or NOTHING,
        *([_engine(record) or NOTHING] if several else []),
        f"{record.cases:,}",
        f"{row.check:<10} {ratio_text(row.ratio):>4}" if row.check else NOTHING,
        count_text(row.mistrusted),
        share_text(row.vacuous),
        count_text(row.gaps),
        _failed_text(row),
    )


def _failed_text(row: Row) -> str:
    """Return the number of failed verdicts, marked if they are a known failure or if the item failed without one."""
    how = standing(row.record)
    if how == "known":
        return f"{row.failed:,} known" if row.failed else "known"
    return printable(row.record.outcome) if how == "failed" and not row.failed else count_text(row.failed)


def standings_text(counts: Mapping[Standing, int]) -> str:
    """Write `38 passed, 1 failed`; a standing without items is left out."""
    return ", ".join(f"{counts[name]:,} {name}" for name in STANDINGS if counts[name]) or "none"


def totals_lines(sums: Totals) -> list[str]:
    """Return the lines below the table: value items, cases of each check that ran on a part of them, other kinds."""
    items = sum(sums.items.values())
    sets = f" with {sums.data_sets:,} data sets" if sums.data_sets > sums.cases else ""
    facts = [counted(sums.cases, "case") + sets, counted(sums.verdicts, "verdict")]
    facts += [
        f"{count:,} {word}" for word, count in (("failed", sums.failed), ("mistrusted", sums.mistrusted)) if count
    ]
    facts += [f"{sums.overflow:,} overflow"] * bool(sums.overflow)
    facts += [f"{share_text(sums.vacuous)} vacuous"] * bool(sums.vacuous)
    facts += [counted(sums.gaps, "gap")]
    lines = [f"{counted(items, 'item')}: {standings_text(sums.items)}; {', '.join(facts)}"] if items else []
    # only if some check ran on a sample of the cases
    if any(count < sums.cases for count in sums.judged.values()):
        lines.append(f"cases by check: {', '.join(f'{name} {count:,}' for name, count in sums.judged.items())}")
    others = "; ".join(f"{kind} {standings_text(counts)}" for kind, counts in sums.others.items())
    return [*lines, others] if others else lines


def left_out_lines(records: Iterable[Record], *, limit: int = 20, width: int = 100) -> list[str]:
    """Say for each operator how much of it is refused or unsupported, and why: a pass says nothing of that."""
    found = left_out(records)
    lines = [shortened(printable(_left_out_text(one)), width) for one in found[:limit]]
    return lines + [f"not judged: cases of {counted(len(found) - limit, 'more operator')}"] * (len(found) > limit)


def _left_out_text(one: LeftOut) -> str:
    parts = []
    if one.cases:
        parts.append(f"{one.cases:,} of {counted(one.of_cases, 'case')} ({share_text(one.cases / one.of_cases)})")
    if one.items:
        parts.append(f"{one.items:,} of {counted(one.of_items, 'item')}")
    return f"not judged: {' and '.join(parts)} of {one.op}: {'; '.join(one.reasons) or 'no reason given'}"


def _other_failures(records: Iterable[Record], limit: int, width: int) -> list[str]:
    """Name the failing items that no line of the table shows."""
    failing = [record for record in records if record.kind != CASES and is_failing(record)]
    failing.sort(key=lambda record: (kind_order(record.kind), record.id))
    lines = [
        shortened(printable(f"  {record.id}: {record.failure or record.outcome}"), width) for record in failing[:limit]
    ]
    return lines + [f"  and {len(failing) - limit:,} more"] * (len(failing) > limit)


def _gap_lines(gaps: tuple[Gap, ...], limit: int, width: int) -> list[str]:
    """Count the gaps by reason, the most common first."""
    shown = gaps[:limit]
    counts = [counted(len(gap.items), "item") for gap in shown]
    aside = max((len(count) for count in counts), default=0)
    across = max((len(printable(gap.check)) for gap in shown), default=0)
    lines = [
        shortened(f"  {count:>{aside}}  {printable(gap.check):<{across}}  {printable(gap.reason)}", width)
        for count, gap in zip(counts, shown, strict=True)
    ]
    more = [f"  and {len(gaps) - limit:,} more"] * (len(gaps) > limit)
    return ["gaps, by reason", *lines, *more]
