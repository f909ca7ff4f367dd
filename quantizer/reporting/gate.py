"""Compares a run with a baseline: the reasons why it must not pass, one sentence each."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from quantizer.core.record import Record
from quantizer.reporting.diff import CoverageChange, Diff, ItemChange, RatioChange, compare
from quantizer.reporting.figures import counted, figure, lsb_text, printable, ratio_text, ratio_texts
from quantizer.reporting.thresholds import FACTOR, FAIL_ON

GRADED = ("accuracy", "float")
"""The checks whose ratio is graded. Other checks judge codes, with ratios near 1 at every tie."""


def gate(
    base: Iterable[Record],
    run: Iterable[Record],
    fail_on: Collection[str],
    *,
    factor: float = FACTOR,
    lsb: float = math.inf,
    filtered: bool = False,
    elsewhere: bool = False,
) -> list[str]:
    """Return why *run* fails against *base*; *filtered*: the run was a selection, so missing items are not a loss.

    *elsewhere*: the runs may be of different processors. *factor*: growth of a graded ratio that counts as a
    regression; *lsb*: growth of the end-to-end error that counts, in steps of the output.
    """
    diff = compare(base, run, filtered=filtered, elsewhere=elsewhere)
    return reasons_to_fail(diff, fail_on, factor=factor, lsb=lsb)


def reasons_to_fail(
    diff: Diff, fail_on: Collection[str], *, factor: float = FACTOR, lsb: float = math.inf
) -> list[str]:
    """Return the result of `gate` for a comparison that exists already; ValueError for an invalid threshold."""
    unknown = sorted(set(fail_on) - set(FAIL_ON))
    if unknown:
        raise ValueError(f"fail_on: {unknown[0]!r} is not a reason to fail. Choose from {', '.join(FAIL_ON)}.")
    if not (math.isfinite(factor) and factor >= 1):
        raise ValueError(f"factor: must be a number of 1 or more, got {factor}.")
    if not lsb >= 0:
        raise ValueError(f"lsb: must be a number of 0 or more, got {lsb}.")
    reasons: list[str] = []
    if not diff.run_items and fail_on:
        reasons.append("The run holds no records: nothing was checked.")
    told: set[str] = set()
    if "new-failure" in fail_on:
        reasons += [_new_failure(change) for change in diff.new_failures]
        told = {change.id for change in diff.new_failures}  # includes the ratios of the checks that fail
    if "regression" in fail_on:
        # A ratio that shrank is no reason, but its error may have grown. Two large runs have a million of both.
        reasons += [
            _regression(change, factor, lsb)
            for changes in (diff.grown, diff.shrunk if lsb < math.inf else ())
            for change in changes
            if not (change.id in told and change.before <= 1 < change.after)
            and (_regressed(change, factor) or (change.lsb_before is not None and change.grown_lsb > lsb))
        ]
    if "coverage" in fail_on:
        reasons += _coverage(diff)
    return [printable(reason) for reason in reasons]


def _new_failure(change: ItemChange) -> str:
    checks = ", ".join(f"{name} {ratio_text(ratio)}" for name, ratio in change.checks)
    why = f": {change.failure.rstrip('.')}" if change.failure else ""
    if change.more:
        return f"{change.id}: {change.after} in more checks than in the baseline ({checks}){why}."
    before = f"{change.before} in the baseline" if change.before else "is not in the baseline"
    return f"{change.id}: {change.after}{f' ({checks})' if checks else ''}, and {before}{why}."


def _regressed(change: RatioChange, factor: float) -> bool:
    # from inside the allowed interval to outside
    crossed = change.before <= 1 < change.after
    return crossed or (change.check in GRADED and change.after > factor * change.before)


def _regression(change: RatioChange, factor: float, lsb: float) -> str:
    if not _regressed(change, factor):
        texts = lsb_text(change.lsb_before), lsb_text(change.lsb_after)
        return f"{change.id}: the worst error grew from {texts[0]} to {texts[1]} LSB, by more than {lsb:g}."
    before, after = ratio_texts(change.before, change.after)
    grew = f"{change.id}: the worst {change.check} ratio grew from {before} to {after}"
    if change.before <= 1 < change.after:
        return f"{grew}, beyond the 1 that is allowed."
    return f"{grew}, by more than {factor:g} times."


def _coverage(diff: Diff) -> Iterator[str]:
    for item in diff.removed:
        cases = f" with {counted(item.cases, 'case')}" if item.cases else ""
        yield f"{item.id}: missing from the run, and in the baseline{cases}."
    for item in diff.added:
        if item.gaps:
            yield f"{item.id}: has {counted(item.gaps, 'gap')}, and is not in the baseline."
    yield from map(_lost, diff.lost)


def _lost(change: CoverageChange) -> str:
    now, before, name = figure(change.after), figure(change.before), change.name
    cases = "case" if change.after == 1 else "cases"
    said = {
        "outcome": f"{now}, and {before} in the baseline",
        "cases": f"ran {now} {cases}, {before} in the baseline",
        "data sets": f"ran {now} data sets, {before} in the baseline",
        "check": f"{name} did not run, and gave {before} verdicts in the baseline",
        "verdicts": f"{name} gave {now} verdicts, {before} in the baseline",
        "inconclusive": f"{name} could not be made in {now} {cases}, {before} in the baseline",
        "sharpness": f"{name} allows intervals of {now} codes, {before} in the baseline",
        "reached": f"{name} is no longer reached",
        "gap": f"{name} is a gap, and was not one in the baseline",
    }
    return f"{change.id}: {said[change.what]}."
