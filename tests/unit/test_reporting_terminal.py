"""The terminal shows the worst items first, in 100 columns, and everything that did not run."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.figures import factor_text, printable, ratio_text, ratio_texts, share_text, shortened
from quantizer.reporting.markdown import render as markdown
from quantizer.reporting.tally import coverage_gaps, summary_of, totals, value_rows
from quantizer.reporting.terminal import left_out_lines, render


def item(op: str, platform: str, outcome: str = "passed", cases: int = 24, **checks: CheckRecord) -> Record:
    return Record(
        f"{op}-w8a8-{platform}", op, "cases", outcome, scheme="w8a8", platform=platform, cases=cases, checks=checks
    )


def records() -> list[Record]:
    ok = CheckRecord(passed=24, ratio=0.97, elements=1000)
    return [
        item("add", "ideal", arithmetic=ok, accuracy=CheckRecord(passed=24, ratio=0.5, elements=1000)),
        item(
            "argmax",
            "compass",
            arithmetic=replace(ok, ratio=0.996),
            accuracy=CheckRecord(passed=21, mistrusted=3, ratio=0.5, elements=1000, vacuous=4),
            tiled=CheckRecord(inconclusive=24, reasons=("tiling: none",)),
        ),
        item("conv2d", "ideal", "failed", arithmetic=CheckRecord(passed=22, failed=2, ratio=1.001, elements=1000)),
        replace(item("conv2d", "compass", "failed", cases=0), gaps=("groups=prime",)),
        item("softmax", "compass", "xfailed", arithmetic=CheckRecord(failed=24, ratio=1595.3, elements=1000)),
        Record("add-golden", "add", "golden", "failed", failure="code 17 is 18\nin the golden"),
        Record("conv2d-golden", "conv2d", "golden", "passed"),
        Record("conv2d-spec", "conv2d", "spec", "skipped"),
    ]


EXPECTED = """\
op       scheme  platform  cases  worst            mistrust  vacuous  gaps    failed
-------  ------  --------  -----  ---------------  --------  -------  ----  --------
conv2d   w8a8    ideal        24  arithmetic 1.01         -        -     -         2
conv2d   w8a8    compass       0  -                       -        -     1    failed
softmax  w8a8    compass      24  arithmetic 1596         -        -     -  24 known
argmax   w8a8    compass      24  arithmetic 0.99         3     0.4%     1         -
add      w8a8    ideal        24  arithmetic 0.97         -        -     -         -

5 items: 2 passed, 2 failed, 1 known; 96 cases, 141 verdicts, 26 failed, 3 mistrusted, 0.2% vacuous,
  2 gaps
cases by check: arithmetic 96, accuracy 48, tiled 24
spec 1 skipped; golden 1 passed, 1 failed
  add-golden: code 17 is 18\\nin the golden

coverage: schemes that passed on each platform, cases that a check left out
op       compass  ideal  gaps
-------  -------  -----  ----------
argmax         1      -  tiled 24
conv2d       0/1    0/1  coverage 1
softmax      0/1      -  -
add            -      1  -

gaps, by reason
  1 item  tiled     tiling: none
  1 item  coverage  groups=prime
"""


def test_a_small_run_renders_as_expected() -> None:
    assert render(records()) == EXPECTED.splitlines()


def test_what_is_refused_or_unsupported_is_counted_by_operator() -> None:
    """The item passes: without the line nobody saw that it judged one case in ten."""
    most = CheckRecord(inconclusive=216, reasons=("declared: no groups", "declared: no nibbles"))
    left = replace(item("add", "compass", "skipped", cases=0), gaps=("declared: no codes of 16 bits",))
    found = [item("conv2d", "ideal", cases=240, engine=most), item("conv2d", "compass", cases=160), *records(), left]
    assert left_out_lines(found) == [
        "not judged: 216 of 424 cases (50.9%) of conv2d: declared: no groups; declared: no nibbles",
        "not judged: 1 of 2 items of add: declared: no codes of 16 bits",
    ]
    assert left_out_lines(found, limit=1)[1] == "not judged: cases of 1 more operator"
    assert set(left_out_lines(found)) < {*render(found)}
    assert f"- {left_out_lines(found)[0]}" in markdown(found).splitlines()
    assert left_out_lines(records()) == []


def test_an_empty_run_renders_nothing() -> None:
    assert render([]) == []


def test_order_does_not_change_the_lines() -> None:
    shuffled = records()
    random.Random(1).shuffle(shuffled)
    assert render(shuffled) == render(records())


def test_rows_beyond_the_limit_are_counted() -> None:
    lines = render(records(), limit=2, path="reports/out/records.jsonl")
    assert lines[4] == "and 3 more: reports/out/records.jsonl"
    assert render(records(), limit=2)[4] == "and 3 more"
    assert "  and 1 more" in render(records(), limit=1)
    assert any(line.startswith("and 5 more") for line in render(records(), limit=0))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_long_names_are_cut_to_the_width(width: int) -> None:
    long = item("depthwise_conv2d_with_a_name", "tflite_builtin_as_of_today", arithmetic=CheckRecord(passed=9))
    wide = replace(long, checks={"a_check_of_a_plugin_" * 9: CheckRecord(inconclusive=9, reasons=("why " * 90,))})
    lines = render([long, replace(wide, id="x", failure="f" * 10**6)], width=width)
    assert max(map(len, lines)) <= max(width, 77)
    assert any(line.startswith("dep") and "tfl" in line for line in lines)


def test_escape_sequences_of_others_do_not_reach_the_terminal() -> None:
    bad = Record("a-\x1b[31m\u202egolden", "a", "golden", "failed", failure="\x1b]0;title\x07")
    lines = render([bad, item("o\np", "\x1b[2J", k=CheckRecord(inconclusive=1, reasons=("\r",)))])
    assert all(line == printable(line) for line in lines)


def test_a_check_without_a_verdict_is_never_the_worst() -> None:
    row = value_rows(
        [item("a", "ideal", tiled=CheckRecord(inconclusive=3, ratio=9.0), accuracy=CheckRecord(passed=1))]
    )[0]
    assert (row.check, row.ratio) == ("accuracy", 0.0)


def test_an_unknown_outcome_counts_as_a_failure() -> None:
    assert totals([item("a", "ideal", "xpassed")]).items == {"passed": 0, "failed": 1, "known": 0, "skipped": 0}


def test_an_engine_column_appears_with_a_second_engine() -> None:
    one, other = (replace(item("a", p), engine=e) for p, e in (("ideal", "quantizer"), ("ort", "onnxruntime")))
    assert "engine" not in render([one])[0]
    assert "engine" in render([one, other])[0]
    assert "onnxruntime" in "\n".join(render([one, other]))


def test_gaps_are_counted_by_check_and_reason_the_most_common_first() -> None:
    gaps = coverage_gaps([*records(), replace(item("b", "ideal"), gaps=("groups=prime",))])
    assert [(gap.check, gap.reason, gap.items) for gap in gaps] == [
        ("coverage", "groups=prime", ("b-w8a8-ideal", "conv2d-w8a8-compass")),
        ("tiled", "tiling: none", ("argmax-w8a8-compass",)),
    ]
    assert coverage_gaps([item("a", "ideal", tiled=CheckRecord(inconclusive=1))])[0].reason == "no reason given"


def test_the_summary_is_the_totals() -> None:
    summary = summary_of(records())
    assert summary["items"] == {"passed": 2, "failed": 2, "known": 1, "skipped": 0}
    assert (summary["cases"], summary["verdicts"], summary["failed"], summary["gaps"]) == (96, 141, 26, 2)
    assert summary["coverage"]["argmax"] == {"arithmetic": [24, 0, 0], "accuracy": [21, 0, 0], "tiled": [0, 0, 24]}
    assert summary["coverage"]["add"]["golden"] == [0, 1, 0]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0, "0.00"),
        (1e-9, "<0.01"),
        (0.29, "0.29"),
        (0.999999, "0.99"),
        (1.0, "1.00"),
        (1.0000001, "1.01"),
        (1.5, "1.50"),
        (99.5, "100"),
        (1595.3, "1596"),
        (2.5e7, "2.5e+07"),
        (float("inf"), "inf"),
    ],
)
def test_rounded_ratios_never_hide_the_limit(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_two_ratios_are_written_apart() -> None:
    assert ratio_texts(0.5, 1.0000001) == ("0.5", "1.0000001")
    assert ratio_texts(0.7, 0.95) == ("0.7", "0.95")
    assert ratio_texts(float("inf"), 0.0) == ("inf", "0")
    assert (factor_text(1.0000001), factor_text(1.4), factor_text(float("inf"))) == ("x1+", "x1.4", "x inf")
    assert (share_text(0.0), share_text(1e-6), share_text(0.25)) == ("-", "<0.1%", "25.0%")


@pytest.mark.parametrize("width", range(12))
def test_a_cut_text_is_as_wide_as_asked(width: int) -> None:
    for middle in (False, True):
        assert len(shortened("depthwise_conv2d", width, middle=middle)) == width
    assert shortened("depthwise_conv2d", 10, middle=True) == "dept..nv2d"


def test_the_name_of_the_worst_check_is_never_cut():
    found = [item("a_rather_long_operator", "tflite_builtin", parameters=CheckRecord(passed=1, ratio=1.0, elements=9))]
    assert "parameters 1.00" in "\n".join(render(found, width=50))


def test_names_are_not_cut_if_the_table_cannot_fit() -> None:
    """Eleven platforms are wider than a narrow terminal whatever is cut."""
    platforms = [f"platform_number_{number}" for number in range(11)]
    gap = CheckRecord(passed=1, inconclusive=9)
    lines = "\n".join(render([item("depthwise_conv2d", name, arithmetic=gap) for name in platforms], width=80))
    assert "\ndepthwise_conv2d  " in lines.split("coverage:")[1]
    assert "arithmetic 99" in lines
