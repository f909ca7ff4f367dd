"""Coverage tables: operator x check, operator x platform with its schemes, and targets with gaps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from quantizer.core.record import Record
from quantizer.core.verdict import ITEM_CHECKS
from quantizer.reporting.figures import NOTHING
from quantizer.reporting.tables import Column, Section
from quantizer.reporting.tally import CASES, COVERAGE, check_order, check_totals, standing


def coverage_table(records: Iterable[Record]) -> Section:
    """Return operator x check with the counts of pass, fail and inconclusive. Item checks count items, others cases."""
    counts = check_totals(records)
    names = sorted({name for cells in counts.values() for name in cells}, key=check_order)
    columns = (Column("op", code=True), *(Column(heading(name), right=True) for name in names))
    rows = tuple((op, *(_triple(counts[op].get(name)) for name in names)) for op in sorted(counts))
    return Section(
        "Coverage",
        columns,
        rows,
        note="Passed / failed / inconclusive, in cases; one number where nothing failed or is missing. "
        f"Mistrusted and overflow cases are in none of the three. {', '.join(ITEM_CHECKS)}: in items.",
    )


def platform_table(records: Iterable[Record]) -> Section:
    """Return operator x platform with the schemes that passed. Other schemes follow after `not`."""
    found = _by_platform(records)
    platforms = _platforms(found)
    rows = tuple((op, *(_schemes(found[op].get(name, ())) for name in platforms)) for op in sorted(found))
    columns = (Column("op", code=True), *(Column(heading(name), code=True) for name in platforms))
    return Section("Platforms", columns, rows, note="Schemes under which the operator passed on each platform.")


def gap_table(records: Iterable[Record]) -> Section:
    """Return operator x check with the targets where the check could not be made, and in how many of their cases.

    For `coverage`, the requested entries that were not reached are counted.
    """
    everything = [record for record in records if record.kind == CASES]
    targets: dict[str, list[Record]] = defaultdict(list)
    for record in everything:
        targets[record.op].append(record)
    columns = (
        Column("op", code=True),
        Column("check", code=True),
        Column("targets", right=True),
        Column("cases", right=True),
        Column("where", code=True),
    )
    rows = []
    for op in sorted(targets):
        by_check: dict[str, list[tuple[Record, int]]] = defaultdict(list)
        for record in targets[op]:
            for name, number in _gaps(record).items():
                by_check[name].append((record, number))
        for check in sorted(by_check, key=check_order):
            missing = [record for record, _ in by_check[check]]
            count = sum(number for _, number in by_check[check])
            cases = f"{count:,}" if check == COVERAGE else f"{count:,} of {sum(r.cases for r in missing):,}"
            rows.append((op, check, f"{len(missing):,} of {len(targets[op]):,}", cases, _where(missing, targets[op])))
    return Section(
        "Targets with gaps", columns, tuple(rows), note="Where a check could not be made, and in how many cases."
    )


def compact_table(records: Iterable[Record]) -> Section:
    """Return one line per operator, those with gaps first: schemes passed on each platform, gaps by check."""
    found = _by_platform(records)
    platforms = _platforms(found)
    lines = []
    for op in sorted(found):
        gaps: dict[str, int] = defaultdict(int)
        for record in (record for own in found[op].values() for record in own):
            for check, count in _gaps(record).items():
                gaps[check] += count
        text = ", ".join(f"{check} {gaps[check]:,}" for check in sorted(gaps, key=check_order))
        lines.append((op, *(_passed(found[op].get(name, ())) for name in platforms), text or NOTHING))
    # operators with gaps, or with schemes that did not pass, come first
    lines.sort(key=lambda line: (line[-1] == NOTHING and not any("/" in cell for cell in line[1:-1]), line[0]))
    columns = (
        Column("op", cut="middle", code=True),
        *(Column(heading(name), right=True) for name in platforms),
        Column("gaps", cut="end"),
    )
    return Section("Coverage", columns, tuple(lines))


def heading(name: str) -> str:
    """Return a name without characters of markup, because names of plugins come from outside."""
    return "".join(c if c.isalnum() or c in "_-." else "?" for c in name)[:40]


def _gaps(record: Record) -> dict[str, int]:
    """Return how much of a value item is missing, by check."""
    found = {name: check.inconclusive for name, check in record.checks.items() if check.inconclusive}
    return found | ({COVERAGE: len(set(record.gaps))} if record.gaps else {})


def _by_platform(records: Iterable[Record]) -> dict[str, dict[str, list[Record]]]:
    found: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    cases = [record for record in records if record.kind == CASES]
    # with several instruction levels, each platform has a column for each level
    several = len({record.isa for record in cases}) > 1
    for record in cases:
        found[record.op][f"{record.platform}-{record.isa}" if several else record.platform].append(record)
    return found


def _platforms(found: Mapping[str, Mapping[str, Sequence[Record]]]) -> list[str]:
    return sorted({name for platforms in found.values() for name in platforms})


def _named(records: Iterable[Record]) -> str:
    return " ".join(sorted({record.scheme or NOTHING for record in records}))


def _schemes(records: Sequence[Record]) -> str:
    passed = [record for record in records if standing(record) == "passed"]
    others = [record for record in records if standing(record) != "passed"]
    return " ".join(filter(None, (_named(passed), f"not {_named(others)}" if others else ""))) or NOTHING


def _passed(records: Sequence[Record]) -> str:
    count = sum(standing(record) == "passed" for record in records)
    return NOTHING if not records else f"{count}" if count == len(records) else f"{count}/{len(records)}"


def _where(missing: Sequence[Record], everything: Sequence[Record]) -> str:
    """Name targets by platform: `ideal: a4 a8`; only the platform if all its schemes are included."""
    if len(missing) == len(everything):
        return "everywhere"
    counts = Counter(record.platform for record in everything)
    by_platform: dict[str, list[Record]] = defaultdict(list)
    for record in missing:
        by_platform[record.platform].append(record)
    parts = [
        platform if len(own) == counts[platform] else f"{platform}: {_named(own)}"
        for platform, own in sorted(by_platform.items())
    ]
    return "; ".join(parts)


def _triple(counts: Sequence[int] | None) -> str:
    if counts is None:
        return NOTHING
    return f"{counts[0]:,}" if not any(counts[1:]) else " / ".join(f"{count:,}" for count in counts)
