"""`quantizer report statement`: what was tested, with what, the results, what is excused, what is missing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting_facts import facts, written

from quantizer.cli import main
from quantizer.core.errors import CaseError
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.statement import Statement, read_statement, state
from quantizer.reporting.statement_markdown import render
from quantizer.reporting.store import write_run

SCHEMA = Path(__file__).parents[2] / "docs/statement.schema.json"
RUN = [
    Record("conv2d-w8a8-ort", "conv2d", "cases", "passed", scheme="w8a8", platform="ort", cases=4, checks={
        "arithmetic": CheckRecord(passed=4, ratio=0.5, elements=100),
        "accuracy": CheckRecord(passed=2, defects=1, inconclusive=1, ratio=0.9, elements=100, vacuous=7,
                                reasons=("old: wraps", "no enclosure"))}, gaps=("data=ties",)),
    Record("relu-a8-ideal", "relu", "cases", "passed", scheme="a8", platform="ideal", cases=3, checks={
        "arithmetic": CheckRecord(passed=3, ratio=1.0, elements=30)}),
    Record("relu-golden", "relu", "golden", "passed"),
]  # fmt: skip


def test_a_statement_lists_results_exceptions_and_gaps() -> None:
    found = state(RUN, facts())
    assert found.result == "conforms"
    assert found.counts == {
        "passed": 3,
        "failed": 0,
        "known": 0,
        "skipped": 0,
        "items": 3,
        "targets": 2,
        "cases": 7,
        "verdicts": 9,
        "elements": 230,
        "refused": 0,
        "excused": 0,
    }
    assert [(one.op, one.version, one.spec) for one in found.operators] == [
        ("conv2d", "1.0", "my_specs/conv2d.yaml"),
        ("relu", "1.0", "my_specs/relu.yaml"),
    ]
    (target,) = found.operators[0].targets
    assert (target.scheme, target.platform, target.result, target.worst_ratio) == ("w8a8", "ort", "passed", 0.9)
    assert target.checks == ["arithmetic", "accuracy"]
    assert found.operators[1].items == {"golden": "passed"}
    assert [(met.declared.id, met.items) for met in found.exceptions] == [("old", ["conv2d-w8a8-ort"])]
    assert [(gap.what, gap.reason) for gap in found.gaps] == [
        ("accuracy", "no enclosure"),
        ("coverage", "not reached: data=ties"),
    ]
    assert found.checks["accuracy"].vacuous == 7
    assert [(p.name, p.origin, p.version) for p in found.plugins] == [("vendor", "vendor-ops", "0.3")]


def test_the_first_line_of_a_statement_counts_refusals() -> None:
    assert "refused" not in render(state(RUN, facts()))
    checks = {"arithmetic": CheckRecord(passed=1), "engine": CheckRecord(inconclusive=2, reasons=("no kernel",))}
    found = state([RUN[0], replace(RUN[1], checks=checks)], facts())
    assert found.counts["refused"] == 2
    assert "7 cases (2 of them refused or unsupported, and not judged), 7 verdicts" in render(found).splitlines()[2]


def test_one_failing_item_does_not_conform() -> None:
    failed = replace(RUN[2], outcome="failed")
    found = state([*RUN[:2], failed], facts())
    assert found.result == "does not conform"
    assert "**Does not conform.** 3 items: 2 passed, 1 failed" in render(found)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"selection": ["-k conv"]}, "a selection ran, not everything: -k conv"),
        ({"tree": None}, "no tree is named"),
        ({"profile": "nightly"}, "the seed of generated cases was not fixed"),
    ],
)
def test_a_statement_names_what_is_left_open(changes: dict[str, object], says: str) -> None:
    found = state(RUN, facts(**changes))
    assert found.gaps[0].what == "run"
    assert says in found.gaps[0].reason
    assert says in render(found)


def test_equal_runs_give_equal_bytes_that_are_read_back(tmp_path: Path) -> None:
    written(tmp_path / "run", reversed(RUN))
    for name in ("a", "b"):
        assert main(["report", "statement", str(tmp_path / "run"), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.md").read_bytes() == (tmp_path / "b.md").read_bytes()
    text = (tmp_path / "a.json").read_text()
    assert text == (tmp_path / "b.json").read_text()
    found = read_statement(text, "a.json")
    assert found == state(RUN, facts())
    assert found.records_sha256 == hashlib.sha256((tmp_path / "run/records.jsonl").read_bytes()).hexdigest()
    with pytest.raises(CaseError, match=r"a.json: result: must be one of conforms, "):
        read_statement(text.replace('"result": "conforms"', '"result": "perfect"'), "a.json")


def test_a_run_that_cannot_be_stated_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def says(text: str) -> None:
        assert main(["report", "statement", str(tmp_path / "run"), "-o", str(tmp_path / "a")]) == 2
        assert text in capsys.readouterr().err
        assert not (tmp_path / "a.json").exists()

    write_run(tmp_path / "run", RUN, {})
    says("holds no run.json: whether the run is whole cannot be told. Run again.")
    written(tmp_path / "run", RUN, shard="1/3")
    says("is shard 1/3 of a run. Merge the shards")
    written(tmp_path / "run", RUN, specs={})
    says("run.json: specs: 'conv2d' is missing")
    written(tmp_path / "run", [])
    says("there is nothing to state")


def test_the_schema_is_fresh() -> None:
    text = json.dumps(Statement.model_json_schema(), indent=1, sort_keys=True) + "\n"
    assert SCHEMA.read_text(encoding="utf-8") == text, "write it anew: see the line above"
