"""Aggregates records: standing, worst check and gaps of an item, and totals over all items."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from quantizer.core.record import CheckRecord, Record
from quantizer.core.verdict import CHECKS, ITEM_CHECKS

Standing = Literal["passed", "failed", "known", "skipped"]

STANDINGS: tuple[Standing, ...] = ("passed", "failed", "known", "skipped")

CASES = "cases"
"""The kind of the items that judge values; all other kinds run once per operator."""

ERROR = "error_lsb"
"""The metric that holds the worst error end to end, in steps of the output."""

ENGINE = "engine"
"""The check that is inconclusive in a case which an engine refuses, or a plugin declares as unsupported."""

COVERAGE = "coverage"
"""Used instead of a check's name for requested coverage that was not reached."""

_ORDER = {name: place for place, name in enumerate(CHECKS + ITEM_CHECKS)}
_STANDING: Mapping[str, Standing] = {"passed": "passed", "xfailed": "known", "skipped": "skipped"}


def standing(record: Record) -> Standing:
    """Return the status of an item; an outcome that is not known to be harmless is a failure."""
    return _STANDING.get(record.outcome, "failed")


def is_failing(record: Record) -> bool:
    """Return whether the item failed without being declared a known failure."""
    return standing(record) == "failed"


def reasons_against(records: Iterable[Record], status: int) -> list[str]:
    """Return why a run may not pass even without a baseline.

    Items that fail, no item that passed, or pytest's exit *status*.
    """
    everything = list(records)
    failing = [record.id for record in everything if is_failing(record)]
    if failing:
        return [f"{len(failing):,} of {len(everything):,} items fail, such as {failing[0]}."]
    if not any(standing(record) == "passed" for record in everything):
        return ["No item passed: nothing was judged."]
    return [f"pytest ended with exit status {status}, and no item fails: something else did."] if status else []


def check_order(name: str) -> tuple[int, str]:
    """Sort checks in the usual reading order; checks of plugins last, by name."""
    return (_ORDER.get(name, len(_ORDER)), name)


def worst_ratio(check: CheckRecord) -> float:
    """Return the worst ratio of a check; NaN counts as infinite, as in a stored record."""
    ratio = check.ratio
    return ratio if ratio == ratio else math.inf  # noqa: PLR0124 - math.isnan, inline for speed


def decided(check: CheckRecord) -> int:
    """Return the number of cases in which the check passed or failed."""
    return check.passed + check.failed


def failing_checks(record: Record) -> tuple[tuple[str, float], ...]:
    """Return the checks that failed with their worst ratios, in reading order."""
    failed = [name for name, check in record.checks.items() if check.failed]
    return tuple((name, worst_ratio(record.checks[name])) for name in sorted(failed, key=check_order))


def defect_reasons(check: CheckRecord) -> set[str]:
    """Return the reasons that name a declared exception, `id: reason`. Other reasons explain inconclusive verdicts."""
    if not check.defects:
        return set()
    return {reason for reason in check.reasons if ": " in reason and reason.partition(": ")[0].isidentifier()}


def item_gaps(record: Record) -> tuple[tuple[str, str], ...]:
    """Return the distinct gaps of an item as (check, reason), coverage that was not reached last."""
    left = [name for name, check in record.checks.items() if check.inconclusive]
    if not left and not record.gaps:
        return ()
    found: list[tuple[str, str]] = []
    for name in sorted(left, key=check_order) if len(left) > 1 else left:
        check = record.checks[name]
        reasons = _distinct(check.reasons)
        if check.defects:
            declared = defect_reasons(check)
            # a declared exception excuses a failure and leaves no gap
            reasons = [reason for reason in reasons if reason not in declared]
        found += [(name, reason) for reason in reasons or ("no reason given",)]
    return (*found, *((COVERAGE, gap) for gap in _distinct(record.gaps)))


def _distinct(texts: Sequence[str]) -> Sequence[str]:
    """Return *texts* sorted, without duplicates; usually there is only one."""
    return texts if len(texts) < 2 else sorted(set(texts))


@dataclass(frozen=True)
class Row:
    """One value item, as a line of a table."""

    record: Record
    check: str
    """The check with the worst ratio; empty if no check has a ratio."""
    ratio: float
    mistrusted: int
    vacuous: float
    """The largest share of vacuous elements in any check."""
    gaps: int
    """Distinct gaps: reasons per check, and coverage that was not reached."""
    failed: int
    """Failed verdicts."""


def _row(record: Record) -> Row:
    # below every ratio, so that a check with ratio 0 counts
    worst, ratio, mistrusted, failed, vacuous = "", -1.0, 0, 0, 0.0
    for name, check in record.checks.items():  # a single pass, because a large run has a million checks
        mistrusted += check.mistrusted
        failed += check.failed
        if check.vacuous:
            vacuous = max(vacuous, check.vacuous / max(check.elements, 1))
        if check.passed or check.failed or check.mistrusted or check.elements:
            own = worst_ratio(check)
            if own > ratio or (own == ratio and check_order(name) < check_order(worst)):
                worst, ratio = name, own
    return Row(
        record=record,
        check=worst,
        ratio=max(ratio, 0.0),
        mistrusted=mistrusted,
        vacuous=vacuous,
        gaps=len(item_gaps(record)),
        failed=failed,
    )


def value_rows(records: Iterable[Record]) -> list[Row]:
    """Return the value items, worst first: failing ones, then by ratio, then by id."""
    rows = [_row(record) for record in records if record.kind == CASES]
    return sorted(rows, key=lambda row: (not is_failing(row.record), -row.ratio, row.record.id))


@dataclass(frozen=True)
class Gap:
    """Something that is not checked, and where."""

    check: str
    reason: str
    items: tuple[str, ...]


def coverage_gaps(records: Iterable[Record]) -> tuple[Gap, ...]:
    """Return the declared gaps of all items, one per check and reason, the most common first."""
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in records:
        for gap in item_gaps(record):
            where[gap].append(record.id)
    gaps = [Gap(check, reason, tuple(sorted(items))) for (check, reason), items in where.items()]
    return tuple(sorted(gaps, key=lambda gap: (-len(gap.items), check_order(gap.check), gap.reason)))


@dataclass(frozen=True)
class LeftOut:
    """What an engine, or a function of a plugin, does not compute of an operator."""

    op: str
    cases: int
    of_cases: int
    items: int
    """Items that did not run."""
    of_items: int
    reasons: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of the items that is left out, an item by its share of cases."""
        run = self.of_items - self.items
        return (self.items + run * self.cases / max(self.of_cases, 1)) / max(self.of_items, 1)


def left_out(records: Iterable[Record]) -> list[LeftOut]:
    """Return the operators of which cases or items are refused or unsupported, the largest share first."""
    by_op: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.kind == CASES:
            by_op[record.op].append(record)
    found = [_left_out(op, own) for op, own in by_op.items()]
    return sorted((one for one in found if one.cases or one.items), key=lambda one: (-one.share, one.op))


def _left_out(op: str, records: Sequence[Record]) -> LeftOut:
    skipped = [record for record in records if standing(record) == "skipped"]
    asked = [check for record in records if (check := record.checks.get(ENGINE)) and check.inconclusive]
    reasons = {reason for check in asked for reason in check.reasons} | {gap for one in skipped for gap in one.gaps}
    return LeftOut(
        op,
        sum(check.inconclusive for check in asked),
        sum(record.cases for record in records),
        len(skipped),
        len(records),
        tuple(sorted(reasons)),
    )


@dataclass(frozen=True)
class Totals:
    """The sums over a run, for value items and, by status, for other kinds."""

    items: Mapping[Standing, int]
    cases: int
    data_sets: int
    """Data sets of all cases: a stack holds several."""
    verdicts: int
    failed: int
    mistrusted: int
    overflow: int
    gaps: int
    vacuous: float
    """Share of vacuous elements, over the checks that have any."""
    judged: Mapping[str, int]
    """Check -> the number of cases on which it ran; checks of plugins are summed as `other`."""
    others: Mapping[str, Mapping[Standing, int]]


class _Sum:
    """The sums of a check over items."""

    def __init__(self) -> None:
        self.passed = self.failed = self.mistrusted = self.overflow = self.defects = self.inconclusive = 0
        self.elements = self.vacuous = 0

    @property
    def verdicts(self) -> int:
        """The number of cases in which the check ran."""
        return self.passed + self.failed + self.mistrusted + self.overflow + self.defects + self.inconclusive


def _sums(records: Iterable[Record]) -> dict[str, _Sum]:
    """Return check -> its sums. A large run has a million checks, with zero for most counts."""
    found: dict[str, _Sum] = defaultdict(_Sum)
    for record in records:
        for name, check in record.checks.items():
            own = found[name]
            own.passed += check.passed
            own.elements += check.elements
            # most of these counts are 0, and testing is cheaper than adding
            if check.failed:
                own.failed += check.failed
            if check.mistrusted:
                own.mistrusted += check.mistrusted
            if check.overflow:
                own.overflow += check.overflow
            if check.defects:
                own.defects += check.defects
            if check.inconclusive:
                own.inconclusive += check.inconclusive
            if check.vacuous:
                own.vacuous += check.vacuous
    return found


def _stand(records: Iterable[Record]) -> dict[Standing, int]:
    counts: dict[Standing, int] = dict.fromkeys(STANDINGS, 0)
    for record in records:
        counts[standing(record)] += 1
    return counts


def kind_order(kind: str) -> tuple[int, str]:
    """Sort kinds: value items, kinds of the core, then others by name."""
    known = (CASES, *ITEM_CHECKS)
    return (known.index(kind) if kind in known else len(known), kind)


def totals(records: Iterable[Record]) -> Totals:
    """Return the sums over *records*."""
    everything = list(records)
    values = [record for record in everything if record.kind == CASES]
    others: dict[str, list[Record]] = defaultdict(list)
    for record in everything:
        if record.kind != CASES:
            others[record.kind if record.kind in ITEM_CHECKS else "other"].append(record)
    sums = _sums(values)
    judged: dict[str, int] = defaultdict(int)
    for name, own in sums.items():
        judged[name if name in _ORDER else "other"] += own.verdicts
    # only checks with vacuous elements: the others would make the share look small
    seen = sum(own.elements for own in sums.values() if own.vacuous)
    return Totals(
        items=_stand(values),
        cases=sum(record.cases for record in values),
        data_sets=sum(max(record.data_sets, record.cases) for record in values),
        verdicts=sum(own.passed + own.failed for own in sums.values()),
        failed=sum(own.failed for own in sums.values()),
        mistrusted=sum(own.mistrusted for own in sums.values()),
        overflow=sum(own.overflow for own in sums.values()),
        gaps=sum(len(item_gaps(record)) for record in values),
        vacuous=sum(own.vacuous for own in sums.values()) / max(seen, 1),
        judged={name: judged[name] for name in sorted(judged, key=check_order)},
        others={kind: _stand(others[kind]) for kind in sorted(others, key=kind_order)},
    )


def check_totals(records: Iterable[Record]) -> dict[str, dict[str, list[int]]]:
    """Return operator -> check -> [passed, failed, inconclusive]: in cases, for item checks in items."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0]))
    for record in records:
        known = counts[record.op]
        for name, check in record.checks.items():
            count = known[name]
            count[0] += check.passed
            count[1] += check.failed
            count[2] += check.inconclusive
        # an item that runs once may have no check of its own name: its outcome counts
        if record.kind != CASES and record.kind not in record.checks:
            how = standing(record)
            for place, kind in enumerate(("passed", "failed", "skipped")):
                known[record.kind][place] += how == kind
    return {op: dict(known) for op, known in counts.items()}


def summary_of(records: Iterable[Record]) -> dict[str, object]:
    """Return the totals, and [passed, failed, inconclusive] by operator and check, as JSON values, for summary.json."""
    everything = list(records)
    return {"version": 1, **asdict(totals(everything)), "coverage": check_totals(everything)}
