"""The gate gives one sentence per requested reason, and none for others."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.gate import gate
from quantizer.reporting.thresholds import FAIL_ON

OK = CheckRecord(passed=10, ratio=0.5, elements=100, width=1.0)


def item(name: str = "a", outcome: str = "passed", cases: int = 10, **checks: CheckRecord) -> Record:
    return Record(name, name, "cases", outcome, cases=cases, checks=checks or {"accuracy": OK})


def test_equal_runs_pass() -> None:
    run = [item(), item("b", "failed", tiled=replace(OK, failed=1, ratio=math.inf))]
    assert gate(run, run, FAIL_ON) == []


@pytest.mark.parametrize(
    ("base", "run", "says"),
    [
        (
            [item()],
            [replace(item(outcome="failed", tiled=replace(OK, failed=1, ratio=2.0)), failure="1 of 9 outside.")],
            ["a: failed (tiled 2.00), and passed in the baseline: 1 of 9 outside."],
        ),
        ([], [item(outcome="error")], ["a: error, and is not in the baseline."]),
        (
            [item(outcome="failed", accuracy=replace(OK, failed=1))],
            [item(outcome="failed", tiled=replace(OK, failed=1, ratio=3.0))],
            ["a: failed in more checks than in the baseline (tiled 3.00)."],
        ),
        ([item(outcome="xfailed")], [item(outcome="xpassed")], ["a: xpassed, and xfailed in the baseline."]),
        ([item(outcome="failed")], [item(outcome="failed")], []),
        ([item(outcome="failed")], [item()], []),
        ([], [item()], []),
    ],
)
def test_new_failures_fail_the_gate_that_asks_for_them(base: list[Record], run: list[Record], says: list[str]) -> None:
    assert gate(base, run, {"new-failure"}) == says
    assert not any("fail" in reason for reason in gate(base, run, {"regression"}))


def test_a_new_failure_is_not_also_a_regression() -> None:
    base, run = item(), item(outcome="failed", accuracy=replace(OK, failed=1, ratio=2.0))
    grown = ["a: the worst accuracy ratio grew from 0.5 to 2, beyond the 1 that is allowed."]
    failed = ["a: failed (accuracy 2.00), and passed in the baseline."]
    assert gate([base], [run], {"regression"}) == grown
    assert gate([base], [run], {"new-failure", "regression"}) == failed
    other = item(accuracy=replace(OK, ratio=0.5), tiled=replace(OK, ratio=0.5))
    worse = replace(run, checks={**run.checks, "tiled": replace(OK, ratio=0.5)})
    assert gate([other], [worse], {"new-failure", "regression"}) == failed


@pytest.mark.parametrize(
    ("check", "before", "after", "says"),
    [
        ("accuracy", 0.5, 0.625, None),
        ("accuracy", 0.5, math.nextafter(0.625, 1), "from 0.5 to 0.625, by more than 1.25 times."),
        ("float", 0.5, 0.7, "from 0.5 to 0.7, by more than 1.25 times."),
        ("float", 0.0, 0.001, "from 0 to 0.001, by more than 1.25 times."),
        ("arithmetic", 0.5, 1.0, None),
        ("arithmetic", 1.0, math.nextafter(1, 2), "from 1 to 1.0000000000000002, beyond the 1 that is allowed."),
        ("tiled", 0.0, math.inf, "from 0 to inf, beyond the 1 that is allowed."),
        ("accuracy", 0.9, 1.01, "from 0.9 to 1.01, beyond the 1 that is allowed."),
        ("accuracy", 2.0, 2.4, None),
        ("accuracy", 2.0, 2.6, "from 2 to 2.6, by more than 1.25 times."),
        ("accuracy", 0.9, 0.5, None),
    ],
)
def test_a_grown_ratio_fails_the_gate_that_asks_for_regressions(
    check: str, before: float, after: float, says: str | None
) -> None:
    old, new = (replace(item(), checks={check: replace(OK, ratio=ratio)}) for ratio in (before, after))
    expected = [f"a: the worst {check} ratio grew {says}"] if says else []
    assert gate([old], [new], {"regression"}) == expected
    assert gate([old], [new], {"new-failure", "coverage"}) == []


def test_the_factor_is_an_argument() -> None:
    old, new = item(), item(accuracy=replace(OK, ratio=0.7))
    assert gate([old], [new], {"regression"}, factor=1.5) == []
    assert gate([old], [new], {"regression"}, factor=1.3) == [
        "a: the worst accuracy ratio grew from 0.5 to 0.7, by more than 1.3 times."
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (item(), item(cases=8, accuracy=replace(OK, passed=8)), ["a: ran 8 cases, 10 in the baseline."]),
        (item(), item(outcome="skipped"), ["a: skipped, and passed in the baseline."]),
        (
            item(accuracy=OK, tiled=OK),
            item(),
            ["a: tiled did not run, and gave 10 verdicts in the baseline."],
        ),
        (
            item(),
            item(accuracy=replace(OK, passed=9, inconclusive=1)),
            ["a: accuracy could not be made in 1 case, 0 in the baseline."],
        ),
        (
            item(),
            item(accuracy=replace(OK, passed=9, mistrusted=1)),
            ["a: accuracy gave 9 verdicts, 10 in the baseline."],
        ),
        (
            item(),
            item(accuracy=replace(OK, width=5.0)),
            ["a: accuracy allows intervals of 5 codes, 1 in the baseline."],
        ),
        (
            replace(item(), coverage=("stride=2",)),
            replace(item(), gaps=("stride=2", "tile=1")),
            ["a: stride=2 is no longer reached.", "a: tile=1 is a gap, and was not one in the baseline."],
        ),
        (item(), item(cases=12, accuracy=replace(OK, passed=12)), []),
    ],
)
def test_lost_coverage_fails_the_gate_that_asks_for_it(old: Record, new: Record, says: list[str]) -> None:
    assert gate([old], [new], {"coverage"}) == says
    assert gate([old], [new], {"new-failure", "regression"}) == []


def test_a_new_item_with_gaps_fails_the_coverage_gate() -> None:
    new = replace(item("b"), gaps=("x=1", "x=2"))
    assert gate([item()], [item(), new], {"coverage"}) == ["b: has 2 gaps, and is not in the baseline."]
    assert gate([item()], [item(), item("b")], {"coverage"}) == []


def test_missing_items_are_a_loss_unless_deselected() -> None:
    base = [item(accuracy=OK, tiled=OK), item("b"), Record("b-golden", "b", "golden", "passed")]
    assert gate(base, [item()], {"coverage"}) == [
        "b: missing from the run, and in the baseline with 10 cases.",
        "b-golden: missing from the run, and in the baseline.",
        "a: tiled did not run, and gave 10 verdicts in the baseline.",
    ]
    assert gate(base, [item()], {"coverage"}, filtered=True) == []
    fewer = item(cases=8, accuracy=replace(OK, passed=8))
    assert gate(base, [fewer], {"coverage"}, filtered=True) == ["a: ran 8 cases, 10 in the baseline."]


@pytest.mark.parametrize("word", FAIL_ON)
def test_an_empty_run_never_passes(word: str) -> None:
    assert gate([], [], {word}, filtered=True) == ["The run holds no records: nothing was checked."]
    assert gate([], [], set()) == []


def test_invalid_gate_arguments_are_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"fail_on: 'speed' is not a reason to fail. Choose from new-failure, regression"
    ):
        gate([], [], {"speed"})
    for factor in (0.9, math.nan, math.inf):
        with pytest.raises(ValueError, match="factor: must be a number of 1 or more"):
            gate([], [], {"regression"}, factor=factor)


def test_every_reason_is_one_printable_sentence() -> None:
    run = [replace(item("a\x1b[1m", "failed"), failure="two\nlines")]
    (reason,) = gate([], run, {"new-failure"})
    assert reason.isprintable()
    assert reason.endswith(".")
