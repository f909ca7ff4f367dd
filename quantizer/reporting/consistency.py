"""Checks that a record is consistent: a passed item has no failed check, and no check has more verdicts than cases."""

from __future__ import annotations

import math

from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.tally import CASES, is_failing, standing


def contradiction(record: Record) -> str | None:
    """Return a contradiction inside a passing record; None if a run could have written it.

    Its digest shows that nobody changed the file by accident. The check does not depend on who wrote the file.
    """
    if is_failing(record):
        return None
    if record.kind == CASES and standing(record) == "passed" and not any(c.passed for c in record.checks.values()):
        return f"{record.outcome}, and no check passed"
    if record.data_sets and record.data_sets < record.cases:
        return f"{record.cases:,} cases, and {record.data_sets:,} data sets"
    passed = standing(record) == "passed"
    most = max(record.cases, record.data_sets) if record.kind == CASES else math.inf
    for name, check in record.checks.items():
        said = check.passed + check.failed + check.mistrusted + check.overflow + check.defects + check.inconclusive
        # a quick test for the usual check: large runs have a million checks
        if said <= most and check.ratio <= 1 and check.vacuous <= check.elements and said and not check.failed:
            continue
        if text := _of_check(record, check, said, most, passed=passed):
            return f"{name}: {text}"
    return None


def _of_check(record: Record, check: CheckRecord, said: int, most: float, *, passed: bool) -> str:
    if check.failed and passed:
        return f"{record.outcome}, and {check.failed:,} failed"
    if said > most:
        return f"{said:,} verdicts of {record.cases:,} cases"
    if check.vacuous > check.elements:
        return f"{check.vacuous:,} vacuous elements of {check.elements:,}"
    if check.elements and not said:
        return f"{check.elements:,} elements, and no verdict"
    if check.ratio > 1 and not (check.failed or check.mistrusted or check.defects or check.overflow):
        return f"a ratio of {check.ratio:g}, and none failed"
    return ""
