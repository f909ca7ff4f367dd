"""The coverage tables stay readable with many operators and targets, and say what is missing where."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.coverage import compact_table, coverage_table, gap_table, platform_table
from quantizer.reporting.gate import gate
from quantizer.reporting.markdown import render as markdown
from quantizer.reporting.terminal import render as terminal

OK = CheckRecord(passed=10, ratio=0.5, elements=100, width=1.0)
GAP = CheckRecord(passed=6, inconclusive=4, ratio=0.5, elements=60, width=1.0, reasons=("no file format",))


def item(op: str, scheme: str, platform: str = "ideal", outcome: str = "passed", **checks: CheckRecord) -> Record:
    name = f"{op}-{scheme}-{platform}"
    return Record(
        name, op, "cases", outcome, scheme=scheme, platform=platform, cases=10, checks=checks or {"float": OK}
    )


def records() -> list[Record]:
    return [
        item("add", "a8"),
        item("add", "a16"),
        item("add", "a8", "compass", round_trip=GAP),
        item("conv", "a8", "ort", "failed"),
        item("conv", "a16", "ort", float=OK, round_trip=GAP),
        replace(item("conv", "a8", float=GAP), gaps=("data=ties", "groups=one")),
        item("relu", "a8", "ort"),
        item("relu", "a4", "ort", "skipped"),
        Record("add-spec", "add", "spec", "passed"),
    ]


def test_platform_tables_list_passed_and_not_passed_schemes() -> None:
    table = platform_table(records())
    assert [column.name for column in table.columns] == ["op", "compass", "ideal", "ort"]
    assert table.rows == (
        ("add", "a8", "a16 a8", "-"),
        ("conv", "-", "a8", "a16 not a8"),
        ("relu", "-", "-", "a8 not a4"),
    )


def test_gaps_are_counted_by_operator_and_check_and_placed() -> None:
    assert gap_table(records()).rows == (
        ("add", "round_trip", "1 of 3", "4 of 10", "compass"),
        ("conv", "float", "1 of 3", "4 of 10", "ideal"),
        ("conv", "round_trip", "1 of 3", "4 of 10", "ort: a16"),
        ("conv", "coverage", "1 of 3", "2", "ideal"),
    )
    everywhere = [item("add", scheme, float=GAP) for scheme in ("a8", "a16")]
    assert gap_table(everywhere).rows == (("add", "float", "2 of 2", "8 of 20", "everywhere"),)


def test_the_compact_table_lists_incomplete_operators_first() -> None:
    assert compact_table(records()).rows == (
        ("add", "1", "2", "-", "round_trip 4"),
        ("conv", "-", "1", "1/2", "float 4, round_trip 4, coverage 2"),
        ("relu", "-", "-", "1/2", "-"),
    )
    assert compact_table([item("b", "a8"), item("a", "a8"), item("z", "a8", float=GAP)]).rows == (
        ("z", "1", "float 4"),
        ("a", "1", "-"),
        ("b", "1", "-"),
    )
    assert compact_table([Record("add-spec", "add", "spec", "passed")]).rows == ()


def test_item_checks_count_items_and_the_others_cases() -> None:
    table = coverage_table(
        [
            item(
                "a",
                "a8",
                accuracy=CheckRecord(passed=4, mistrusted=6),
                float=CheckRecord(mistrusted=9),
                plugin_check=CheckRecord(passed=10),
            ),
            Record("a-spec", "a", "spec", "passed"),
            Record("a-reject", "a", "reject", "skipped"),
        ]
    )
    assert [column.name for column in table.columns] == ["op", "float", "accuracy", "spec", "reject", "plugin_check"]
    assert table.rows == (("a", "0", "4", "1", "0 / 0 / 1", "10"),)


@pytest.mark.parametrize("table", [coverage_table, platform_table, gap_table, compact_table])
def test_order_does_not_change_a_table(table) -> None:
    shuffled = records()
    random.Random(3).shuffle(shuffled)
    assert table(shuffled) == table(records())


def many() -> list[Record]:
    """Thirty operators on seventeen targets."""
    targets = [("compass", 7), ("ideal", 8), ("ort", 2)]
    return [
        item(f"operator_{op:02}", f"w{scheme}a8", platform, float=OK, round_trip=GAP if op % 2 else OK)
        for op in range(30)
        for platform, count in targets
        for scheme in range(count)
    ]


def test_thirty_operators_on_seventeen_targets_stay_readable() -> None:
    lines = terminal(many(), width=100)
    start = next(i for i, line in enumerate(lines) if line.startswith("coverage"))
    assert lines[start + 1].split() == ["op", "compass", "ideal", "ort", "gaps"]
    assert lines[start + 3].split() == ["operator_01", "7", "8", "2", "round_trip", "68"]
    assert max(map(len, lines)) <= 100
    assert "and 10 more" in lines
    assert len(gap_table(many()).rows) == 15
    assert len(markdown(many()).splitlines()) < 160


@pytest.mark.parametrize("place", range(0, 510, 73))
def test_a_new_gap_or_a_lost_cell_fails_the_gate(place: int) -> None:
    base = many()
    worse = [*base]
    less = replace(OK, passed=9, inconclusive=1, reasons=("new",))
    worse[place] = replace(base[place], checks={**base[place].checks, "float": less})
    name = base[place].id
    assert gate(base, worse, {"coverage"}) == [f"{name}: float could not be made in 1 case, 0 in the baseline."]
    lost = {check: found for check, found in base[place].checks.items() if check != "float"}
    worse[place] = replace(base[place], checks=lost)
    assert gate(base, worse, {"coverage"}) == [f"{name}: float did not run, and gave 10 verdicts in the baseline."]
    assert gate(base, base[:place] + base[place + 1 :], {"coverage"}) == [
        f"{name}: missing from the run, and in the baseline with 10 cases."
    ]
