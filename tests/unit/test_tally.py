"""Totals of a run: each count is that of the records, gaps are distinct reasons and coverage that was not reached."""

from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.tally import item_gaps, totals

RECORDS = [
    Record(
        "one",
        "op",
        "cases",
        "passed",
        cases=5,
        checks={
            "arithmetic": CheckRecord(passed=3, overflow=2, reasons=("a sum leaves its range",)),
            "pipeline": CheckRecord(
                inconclusive=4, reasons=("nobody reads it", "close: a declared exception"), defects=1
            ),
        },
        gaps=("data=ties", "tiles=split"),
    ),
    Record(
        "two",
        "op",
        "cases",
        "failed",
        cases=2,
        checks={"tiled": CheckRecord(failed=1, mistrusted=1, inconclusive=1, reasons=("nobody reads it",))},
    ),
]


def test_totals_count_cases_verdicts_and_items():
    found = totals(RECORDS)
    assert (found.cases, found.verdicts, found.failed, found.mistrusted, found.overflow) == (7, 4, 1, 1, 2)
    assert found.items == {"passed": 1, "failed": 1, "known": 0, "skipped": 0}


def test_gaps_exclude_exceptions_and_list_coverage_last():
    assert item_gaps(RECORDS[0]) == (
        ("pipeline", "nobody reads it"),
        ("coverage", "data=ties"),
        ("coverage", "tiles=split"),
    )
    assert totals(RECORDS).gaps == 4
