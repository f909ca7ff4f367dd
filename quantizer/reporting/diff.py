"""Compares two runs: failures, errors, coverage and items."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Literal

from msgspec import Struct

from quantizer.core.errors import CaseError
from quantizer.core.record import CheckRecord, Record
from quantizer.core.verdict import SHARP_WIDTH
from quantizer.reporting.machine import FIGURES
from quantizer.reporting.tally import (
    ERROR,
    check_order,
    decided,
    failing_checks,
    is_failing,
    item_gaps,
    standing,
    worst_ratio,
)

OWN = "builtin"
"""The name of the built-in engine."""
_RANK = {"passed": 2, "failed": 1, "known": 1, "skipped": 0}
"""The rank of each standing; passed -> failed is a new failure, any other step down is lost coverage."""


@dataclass(frozen=True)
class ItemChange:
    """An item that fails or failed; an outcome is empty if the item is missing."""

    id: str
    before: str
    after: str
    checks: tuple[tuple[str, float], ...] = ()
    """The checks that fail now, with their worst ratios; with `more`, only those that did not fail before."""
    failure: str = ""
    more: bool = False
    """Whether it also failed before, in other checks."""


class RatioChange(Struct, frozen=True, gc=False):
    """The worst ratio of one check, in both runs."""

    id: str
    check: str
    before: float
    after: float
    lsb_before: float | None = None
    """Worst end-to-end error in steps of the output, from `accuracy`; None if the run did not measure it."""
    lsb_after: float | None = None

    @property
    def grown_lsb(self) -> float:
        """The growth of the worst error in steps of the output; 0 if one of the runs did not measure it."""
        if self.lsb_before is None or self.lsb_after is None:
            return 0.0
        return self.lsb_after - self.lsb_before

    @property
    def grew(self) -> bool:
        """Return whether it became worse: by its ratio, or with an equal ratio by its error."""
        return self.after > self.before or (self.after == self.before and self.grown_lsb > 0)

    @property
    def factor(self) -> float:
        """The factor of the change, up or down; above 1."""
        small, large = min(self.before, self.after), max(self.before, self.after)
        if small == large:
            return 1.0
        return math.inf if small == 0 or math.isinf(large) else large / small


@dataclass(frozen=True)
class CoverageChange:
    """Something that one run checked and the other did not check, or checked less."""

    id: str
    what: Literal["outcome", "cases", "data sets", "check", "verdicts", "inconclusive", "sharpness", "reached", "gap"]
    """verdicts: lost verdicts of a check that fewer cases or more gaps do not explain; reached, gap: an entry of the
    coverage."""
    name: str
    """The check, or the entry of the coverage."""
    before: int | float | str
    after: int | float | str


@dataclass(frozen=True)
class ItemAppearance:
    """An item that only one of the runs has."""

    id: str
    kind: str
    outcome: str
    cases: int
    gaps: int
    """Distinct gaps of the item."""


@dataclass(frozen=True)
class Diff:
    """The difference between a run and its base.

    Every list is sorted, the worst entry first if entries can be ranked.
    """

    base_items: int
    run_items: int
    new_failures: tuple[ItemChange, ...] = ()
    """Items that fail now and did not fail in the base, or not in this check; includes new items that fail."""
    fixed: tuple[ItemChange, ...] = ()
    still_failing: tuple[ItemChange, ...] = ()
    grown: tuple[RatioChange, ...] = ()
    shrunk: tuple[RatioChange, ...] = ()
    lost: tuple[CoverageChange, ...] = ()
    gained: tuple[CoverageChange, ...] = ()
    added: tuple[ItemAppearance, ...] = ()
    removed: tuple[ItemAppearance, ...] = ()
    engines: tuple[tuple[str, str], ...] = ()
    """Engines of items in both, before and now, with versions, where they differ. It is not a change by itself."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing changed. An item that fails in both runs is not a change."""
        counts = ("base_items", "run_items", "still_failing", "engines")
        return not any(getattr(self, field.name) for field in fields(self) if field.name not in counts)

    @functools.cached_property
    def grown_otherwise(self) -> tuple[RatioChange, ...]:
        """The grown errors without the checks that a new failure lists already."""
        listed = {(change.id, name) for change in self.new_failures for name, _ in change.checks}
        return tuple(change for change in self.grown if (change.id, change.check) not in listed)


def compare(base: Iterable[Record], run: Iterable[Record], *, filtered: bool = False, elsewhere: bool = False) -> Diff:
    """Return the changes from *base* to *run*, item by item; the order of the records does not matter.

    *filtered*: the run was a selection, so items and checks that it leaves out are not changes. *elsewhere*: the runs
    may be of different processors, on which real engines choose different kernels.
    """
    before, after = _by_id(base, "the baseline"), _by_id(run, "the run")
    both = [(before[item], after[item]) for item in sorted(before.keys() & after.keys())]
    changed = [pair for pair in both if pair[0] != pair[1]]
    grown, shrunk = _by_size(changed, elsewhere=elsewhere)
    lost: list[CoverageChange] = []
    gained: list[CoverageChange] = []
    for old, new in changed:
        names = _covered_otherwise(old, new)
        # changed only in figures, which `_by_size` compares
        if not names and _beside_checks(old) == _beside_checks(new):
            continue
        moves = _moves(new, elsewhere=elsewhere)
        lost += [loss for loss in _losses(old, new, names, elsewhere=moves) if not (filtered and loss.what == "check")]
        # a gain is a loss in the other direction
        gained += map(_swapped, _losses(new, old, names, elsewhere=moves))
    ill = [pair for pair in both if _stood_ill(pair[0])]
    return Diff(
        base_items=len(before),
        run_items=len(after),
        new_failures=_new_failures(before, after),
        fixed=tuple(_item(old, new) for old, new in ill if standing(new) == "passed"),
        still_failing=tuple(
            _item(old, new) for old, new in ill if is_failing(old) and standing(new) in ("failed", "known")
        ),
        grown=grown,
        shrunk=shrunk,
        lost=tuple(lost),
        gained=tuple(gained),
        added=tuple(_appearance(after[item]) for item in sorted(after.keys() - before.keys())),
        removed=() if filtered else tuple(_appearance(before[item]) for item in sorted(before.keys() - after.keys())),
        engines=tuple(sorted({(old.engine, new.engine) for old, new in both if old.engine != new.engine})),
    )


def _by_id(records: Iterable[Record], where: str) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in records:
        if record.id in found:
            raise CaseError(f"{where}: id: {record.id!r} is there twice. A run has one record per item.")
        found[record.id] = record
    return found


def _stood_ill(record: Record) -> bool:
    return standing(record) in ("failed", "known")


def _item(old: Record | None, new: Record) -> ItemChange:
    return ItemChange(new.id, old.outcome if old else "", new.outcome, failing_checks(new), new.failure)


def _new_failures(before: Mapping[str, Record], after: Mapping[str, Record]) -> tuple[ItemChange, ...]:
    found: list[ItemChange] = []
    for item in sorted(after):
        old, new = before.get(item), after[item]
        if not is_failing(new):
            continue
        if old is None or not is_failing(old):
            found.append(_item(old, new))
            continue
        known = {name for name, _ in failing_checks(old)}
        # it failed before, too: only the checks that did not are new
        more = tuple(pair for pair in failing_checks(new) if pair[0] not in known)
        if more:
            found.append(replace(_item(old, new), checks=more, more=True))
    return tuple(found)


def _appearance(record: Record) -> ItemAppearance:
    return ItemAppearance(record.id, record.kind, record.outcome, record.cases, len(item_gaps(record)))


def _moves(record: Record, *, elsewhere: bool) -> bool:
    """Return whether the engine chooses kernels by a processor that may have changed. The built-in functions do not."""
    return elsewhere and record.engine != OWN


def _ratios(old: Record, new: Record, *, elsewhere: bool) -> Iterator[RatioChange]:
    """Yield the checks with a verdict in both runs and a different worst ratio or error.

    If a defect of one of two processors excludes cases, the worst ratios come from different cases. Float kernels of
    another processor also differ in their last bits. A failed item was judged up to its failure: only the checks that
    failed in one of the runs can be compared then.
    """
    elsewhere = elsewhere or old.isa != new.isa
    # a failure ends its item, so that the other checks saw fewer cases
    partial = is_failing(old) or is_failing(new)
    comparable = {name for name, _ in (*failing_checks(old), *failing_checks(new))} if partial else new.checks
    known, checks, item = old.checks, new.checks, new.id
    for name in _in_order(tuple(checks)):
        was, now = known.get(name), checks[name]
        if was is None or (was.ratio == now.ratio and name != "accuracy") or name not in comparable:
            continue
        # float kernels, and the cases that a defect excludes, depend on the processor
        if elsewhere and (name in FIGURES or _moved(old, new, name)):
            continue
        if not ((was.passed or was.failed) and (now.passed or now.failed)):  # `decided`, inline for speed
            continue
        before, after = worst_ratio(was), worst_ratio(now)
        if name == "accuracy" and not partial:
            change = RatioChange(item, name, before, after, old.metrics.get(ERROR), new.metrics.get(ERROR))
            if before != after or change.grown_lsb:
                yield change
        elif before != after:
            yield RatioChange(item, name, before, after)


@functools.lru_cache(maxsize=4096)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names, key=check_order))


def _by_size(pairs: Iterable[tuple[Record, Record]], *, elsewhere: bool) -> tuple[tuple[RatioChange, ...], ...]:
    """Return the ratios that grew and those that shrank, by factor, then error, then ratio, the largest first.

    Equal entries stay in the order of ids and checks in which they were found. They are sorted as arrays, because
    two large runs have a million of them.
    """
    found = [change for old, new in pairs for change in _ratios(old, new, elsewhere=elsewhere)]
    if not found:
        return (), ()
    import numpy as np  # imported here, so that a comparison of equal runs starts without it

    before, after = (np.fromiter(map(attrgetter(name), found), np.float64, len(found)) for name in ("before", "after"))
    errors = np.zeros(len(found))
    for place, change in enumerate(found):
        if change.lsb_before is not None:
            errors[place] = change.grown_lsb
    small, large = np.minimum(before, after), np.maximum(before, after)
    with np.errstate(all="ignore"):
        factors = np.where(small == large, 1.0, np.where((small == 0) | np.isinf(large), np.inf, large / small))
    # lexsort's last key counts most: factor, then error, then ratio; minus signs put the largest first
    order = np.lexsort((-large, -np.abs(errors), -factors))
    grew = (after > before) | ((small == large) & (errors > 0))
    return tuple(tuple(map(found.__getitem__, order[which[order]].tolist())) for which in (grew, ~grew))


def _swapped(loss: CoverageChange) -> CoverageChange:
    return CoverageChange(loss.id, loss.what, loss.name, loss.after, loss.before)


def _beside_checks(record: Record) -> tuple[object, ...]:
    """Return the coverage of a record besides its checks."""
    return record.outcome, record.cases, record.coverage, record.gaps


def _covered_otherwise(old: Record, new: Record) -> list[str]:
    """Return the checks that only one record has, or whose verdicts, inconclusive cases or widths differ."""
    known, checks = old.checks, new.checks
    found = [name for name in checks if name not in known]
    for name, was in known.items():
        now = checks.get(name)
        if (
            now is None
            or was.passed != now.passed
            or was.failed != now.failed
            or was.inconclusive != now.inconclusive
            or was.width != now.width
        ):
            found.append(name)
    return sorted(found, key=check_order) if found else found


def _losses(old: Record, new: Record, names: Iterable[str], *, elsewhere: bool) -> Iterator[CoverageChange]:
    """Yield coverage that *old* has and *new* lacks, in the checks of these *names* and besides them.

    Called the other way round it yields the gains.

    An engine on another processor may show defects that it did not show on the first: they are known, not lost.
    A failure ends its item. So coverage that a new failure hides comes back when the failure is repaired, and what
    the repaired item leaves open was hidden before.
    """
    # what else is missing follows from the failure
    if is_failing(new) and not is_failing(old):
        return
    ranks = _RANK[standing(old)], _RANK[standing(new)]
    if ranks[1] < ranks[0]:
        yield CoverageChange(new.id, "outcome", "", old.outcome, new.outcome)
    if new.cases < old.cases:
        yield CoverageChange(new.id, "cases", "", old.cases, new.cases)
    sets = tuple(max(record.data_sets, record.cases) for record in (old, new))
    # as many cases with fewer data sets: stacks became smaller
    if sets[1] < sets[0] and new.cases >= old.cases:
        yield CoverageChange(new.id, "data sets", "", *sets)
    # verdicts that are missing because cases are missing are not a further loss
    fewer_cases = max(old.cases - new.cases, 0)
    for name in names:
        was = old.checks.get(name, CheckRecord())
        now = new.checks.get(name)
        if now is None:
            if decided(was):
                yield CoverageChange(new.id, "check", name, decided(was), 0)
        else:
            moved = _moved(old, new, name) if elsewhere else 0
            losses = _check_losses(new.id, name, was, now, fewer_cases, moved)
            yield from (loss for loss in losses if loss.what == "verdicts" or not is_failing(old))
    entries = _entry_losses(old, new)
    yield from (loss for loss in entries if loss.what == "reached" or not is_failing(old))


def _moved(old: Record, new: Record, check: str) -> int:
    """Return in how many more cases a check ended in a known defect because the processor differs.

    With a defect there may also be no sharp arithmetic check, without which `accuracy` is not trusted.
    """
    if check not in old.checks:
        return 0
    was, now = old.checks[check], new.checks[check]
    return now.defects + now.mistrusted - was.defects - was.mistrusted


def _check_losses(
    item: str, name: str, was: CheckRecord, now: CheckRecord, fewer: int, moved: int
) -> Iterator[CoverageChange]:
    """Yield the coverage that a check lost; *moved* cases show a defect on only one of two processors."""
    more_inconclusive = now.inconclusive - was.inconclusive - max(-moved, 0)
    if more_inconclusive > 0:
        yield CoverageChange(item, "inconclusive", name, was.inconclusive, now.inconclusive)
    if decided(was) - decided(now) > fewer + max(moved, 0) + max(more_inconclusive, 0):
        yield CoverageChange(item, "verdicts", name, decided(was), decided(now))
    if was.width <= SHARP_WIDTH < now.width and decided(was):
        yield CoverageChange(item, "sharpness", name, was.width, now.width)


def _entry_losses(old: Record, new: Record) -> Iterator[CoverageChange]:
    if old.coverage == new.coverage and old.gaps == new.gaps:
        return
    reached, gaps = set(old.coverage), set(new.gaps)
    for entry in sorted(reached - set(new.coverage)):
        yield CoverageChange(new.id, "reached", entry, "reached", "gap" if entry in gaps else "")
    for entry in sorted(gaps - set(old.gaps) - reached):
        yield CoverageChange(new.id, "gap", entry, "", "gap")
