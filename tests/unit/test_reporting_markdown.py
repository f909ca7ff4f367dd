"""The markdown report is one document: readable, no larger than asked, and nothing in it can break its tables."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tabulate import tabulate

from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.figures import printable
from quantizer.reporting.markdown import render
from quantizer.reporting.tables import Column, Rows, Section, capped, code, markdown_table


def item(op: str, scheme: str, outcome: str = "passed", failure: str = "", **checks: CheckRecord) -> Record:
    return Record(
        f"{op}-{scheme}-ideal",
        op,
        "cases",
        outcome,
        scheme=scheme,
        platform="ideal",
        cases=10,
        checks=checks,
        failure=failure,
    )


def records() -> list[Record]:
    ok = CheckRecord(passed=10, ratio=0.5, elements=100)
    bad = CheckRecord(passed=8, failed=2, ratio=2.0, elements=100)
    return [
        item("add", "a8", arithmetic=ok, tiled=CheckRecord(inconclusive=10, reasons=("tiling: none",))),
        item("add", "a16", "failed", "2 of 9 | outside", arithmetic=bad, tiled=ok),
        item("conv2d", "w8a8", "xfailed", "defect B", arithmetic=bad),
        Record("add-golden", "add", "golden", "passed"),
        Record("conv2d-golden", "conv2d", "golden", "failed"),
    ]


EXPECTED = """\
## Conformance

- 3 items: 1 passed, 1 failed, 1 known; 30 cases, 40 verdicts, 4 failed, 1 gap
- cases by check: arithmetic 30, tiled 20
- golden 1 passed, 1 failed

### Failures (2)

| item            | checks            | failure             |
|:----------------|:------------------|:--------------------|
| `add-a16-ideal` | `arithmetic 2.00` | `2 of 9 \\| outside` |
| `conv2d-golden` | `failed`          |                     |

### Worst items (2)

The first 2 of 3, worst first.

| op       | scheme   | platform   |   cases | worst             |   mistrust |   vacuous |   gaps |   failed |
|:---------|:---------|:-----------|--------:|:------------------|-----------:|----------:|-------:|---------:|
| `add`    | `a16`    | `ideal`    |      10 | `arithmetic 2.00` |          - |         - |      - |        2 |
| `conv2d` | `w8a8`   | `ideal`    |      10 | `arithmetic 2.00` |          - |         - |      - |  2 known |

### Coverage (2)

Passed / failed / inconclusive, in cases; one number where nothing failed or is missing. \
Mistrusted and overflow cases are in none of the three. spec, golden, reject, regressions: in items.

| op       |   arithmetic |       tiled |    golden |
|:---------|-------------:|------------:|----------:|
| `add`    |   18 / 2 / 0 | 10 / 0 / 10 |         1 |
| `conv2d` |    8 / 2 / 0 |           - | 0 / 1 / 0 |

### Platforms (2)

Schemes under which the operator passed on each platform.

| op       | ideal        |
|:---------|:-------------|
| `add`    | `a8 not a16` |
| `conv2d` | `not w8a8`   |

### Targets with gaps (1)

Where a check could not be made, and in how many cases.

| op    | check   |   targets |    cases | where       |
|:------|:--------|----------:|---------:|:------------|
| `add` | `tiled` |    1 of 2 | 10 of 10 | `ideal: a8` |

### Reasons of gaps (1)

|   items | check   | reason         | for example    |
|--------:|:--------|:---------------|:---------------|
|       1 | `tiled` | `tiling: none` | `add-a8-ideal` |

### Known failures (1)

| item                | checks            | failure    |
|:--------------------|:------------------|:-----------|
| `conv2d-w8a8-ideal` | `arithmetic 2.00` | `defect B` |
"""


def test_a_small_run_renders_as_expected() -> None:
    assert render(records(), limit=2) == EXPECTED


def test_an_empty_run_says_so() -> None:
    assert render([]) == "## Conformance\n\nNothing ran.\n"


def test_order_does_not_change_the_bytes() -> None:
    assert render(reversed(records())) == render(records())
    shuffled = records()
    random.Random(5).shuffle(shuffled)
    assert render(shuffled) == render(records())


def many(count: int) -> list[Record]:
    bad = CheckRecord(failed=1, ratio=3.0, elements=1)
    gap = CheckRecord(inconclusive=1, reasons=("é" * 50,))
    return [item(f"op{n}", "a8", "failed", f"text {n} " * 9, arithmetic=bad, tiled=gap) for n in range(count)]


@pytest.mark.parametrize("max_bytes", [2_000, 5_000, 20_000, 100_000])
def test_the_size_limit_holds_and_cuts_are_reported(max_bytes: int) -> None:
    text = render(many(300), max_bytes=max_bytes)
    assert max_bytes // 2 < len(text.encode()) <= max_bytes
    if max_bytes < 100_000:
        assert f"\nCut to {max_bytes:,} bytes. Left out: " in text
        cut = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) rows? of Failures", text))
        assert len(re.findall(r"^\| `op\d+-a8-ideal` *\| `arithmetic", text, re.MULTILINE)) == 300 - cut
    else:
        assert "Cut to" not in text


def test_a_table_that_fits_exactly_is_not_cut() -> None:
    whole = render(many(30))
    size = len(whole.encode())
    assert render(many(30), max_bytes=size) == whole
    assert "Cut to" in render(many(30), max_bytes=size - 1)


def test_no_room_for_the_headline_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_bytes: 10 is not room enough"):
        render(many(3), max_bytes=10)


@pytest.mark.parametrize("text", ["a|b", "`", "``x`", " x ", "a\nb", "<img>", "@someone", "\x1b[1m", "x" * 999])
def test_no_text_breaks_out_of_a_code_span_or_cell(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence
    inner = span[len(fence[0]) : -len(fence[0])]
    assert span.endswith(fence[0])
    assert fence[0] not in re.findall("`+", inner)
    assert not re.search(r"(?<!\\)\|", span)
    assert span.isprintable()
    assert len(span) < 320
    section = Section("t", (Column("c", code=True), Column("d", right=True)), ((text, "1"),))
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in markdown_table(section)] == [3, 3, 3]


def test_markup_in_names_stays_text() -> None:
    hostile = replace(item("a|b", "<b>", "failed"), checks={"x|<i>": CheckRecord(failed=1)})
    text = render([hostile, Record("k", "@me", "<kind>", "failed")])
    outside = re.sub(r"(`+).*?\1", "", text)
    assert not re.search(r"[<@]|\\\|", outside)


cells = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.sampled_from("| `\t"), max_size=12)
aligned = st.lists(st.booleans(), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(
    aligned.flatmap(lambda right: st.tuples(st.just(right), st.lists(st.tuples(*(cells for _ in right)), min_size=1)))
)
def test_tables_are_laid_out_as_tabulate_does(table: tuple[list[bool], list[tuple[str, ...]]]) -> None:
    right, rows = table
    columns = tuple(Column("c" * (place + 1), right=side) for place, side in enumerate(right))
    expected = tabulate(
        [[printable(cell) for cell in row] for row in rows],
        headers=[column.name for column in columns],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if side else "left" for side in right],
    )
    assert markdown_table(Section("t", columns, rows)) == expected.split("\n")


def test_rows_beyond_the_size_limit_are_not_rendered() -> None:
    written: list[int] = []

    def write(number: int) -> tuple[str]:
        written.append(number)
        return (f"{number:09}",)

    sections = [Section(title, (Column("a"),), Rows(range(10_000), write)) for title in ("one", "two")]
    text = capped(["head"], sections, 4000)
    shown = len(re.findall(r"^\| \d+ ", text, re.MULTILINE))
    assert 200 < shown <= len(written) < 400
    assert "10,000" in text


def test_sections_without_rows_are_left_out() -> None:
    section = Section("Empty", (Column("a"),), ())
    assert capped(["head"], [section], 100) == "head\n"
