"""Declared exceptions in a report: by age from a given day, expired ones first, never by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from reporting_facts import facts

from quantizer.cli import main
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting import markdown, page
from quantizer.reporting.exceptions import exceptions, exceptions_table
from quantizer.reporting.store import write_run
from quantizer.reporting.tally import item_gaps

MET = [
    Record("conv2d-w8a8-ort", "conv2d", "cases", "passed", platform="ort", cases=4, checks={
        "accuracy": CheckRecord(passed=3, defects=1, inconclusive=1, reasons=("a gap: not a defect's id", "old: wraps"))}),
    Record("add-a8-ort", "add", "cases", "passed", platform="ort", cases=4, checks={
        "accuracy": CheckRecord(passed=3, defects=1, reasons=("old: wraps", "other: not in run.json")),
        "tiled": CheckRecord(passed=3, inconclusive=1, reasons=("stuck: a gap, no defect",))}),
    Record("relu-a8-ideal", "relu", "cases", "passed", platform="ideal", cases=4, checks={
        "arithmetic": CheckRecord(passed=3, defects=2, reasons=("stuck: a stuck carry",))}),
]  # fmt: skip


def rows(as_of: str = "") -> list[dict[str, str]]:
    table = exceptions_table(exceptions(MET, facts(), as_of), as_of)
    return [dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows]


def test_expired_entries_come_first_then_the_oldest() -> None:
    found = rows()
    assert [(row["exception"], row["age in days"], row["expires"]) for row in found] == [
        ("gone", "-", "2026-11-01, expired"),
        ("old", "293", "-"),
        ("stuck", "50", "2026-12-31"),
        ("other", "-", "-"),
    ]
    assert [(row["items"], row["for example"], row["kind"]) for row in found] == [
        ("not met", "-", "known failure"),
        ("2", "add-a8-ort", "platform defect"),
        ("1", "relu-a8-ideal", "known failure"),
        ("1", "add-a8-ort", "platform defect"),
    ]


def test_exception_age_uses_the_given_day() -> None:
    found = {row["exception"]: row for row in rows("2027-02-01")}
    assert found["old"]["age in days"] == "366"
    assert found["stuck"]["expires"] == "2026-12-31, expired"
    assert [row["exception"] for row in rows("2027-02-01")][0] == "stuck"
    unknown = exceptions(MET, facts(tree=None))
    assert {met.age for met in unknown} == {None}
    assert not any(met.expired for met in unknown)


def test_page_and_markdown_list_exceptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (page.render(MET, title="t", facts=facts()), markdown.render(MET, facts=facts())):
        assert "Exceptions by age" in text
        assert text.index("2026-11-01, expired") < text.index("wraps")
        assert "Ages are told by 2026-11-20." in text
    write_run(tmp_path, MET, {}, facts())
    assert main(["report", "show", str(tmp_path), "--format", "markdown", "--as-of", "2027-02-01"]) == 0
    assert "Ages are told by 2027-02-01." in capsys.readouterr().out
    assert main(["report", "show", str(tmp_path), "--as-of", "tomorrow"]) == 2
    assert "must be a day such as 2027-01-31" in capsys.readouterr().err


def test_a_declared_exception_is_not_a_gap() -> None:
    assert [item_gaps(record) for record in MET] == [
        (("accuracy", "a gap: not a defect's id"),),
        (("tiled", "stuck: a gap, no defect"),),
        (),
    ]
