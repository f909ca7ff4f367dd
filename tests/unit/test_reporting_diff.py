"""A diff names what changed, item by item and check by check, and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quantizer.core.errors import CaseError
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.diff import CoverageChange, Diff, compare
from quantizer.reporting.diff_views import as_json, as_markdown, as_terminal, render

OK = CheckRecord(passed=10, ratio=0.5, elements=100, width=1.0)
BAD = CheckRecord(passed=9, failed=1, ratio=2.0, elements=100, width=1.0)


def item(name: str = "a", outcome: str = "passed", cases: int = 10, **checks: CheckRecord) -> Record:
    return Record(name, name, "cases", outcome, cases=cases, checks=checks or {"accuracy": OK})


def change(old: Record, new: Record) -> Diff:
    return compare([old], [new])


def test_each_item_has_its_status() -> None:
    outcomes = {
        "p-p": ("passed", "passed"),
        "p-f": ("passed", "failed"),
        "f-p": ("failed", "passed"),
        "f-f": ("failed", "error"),
        "x-f": ("xfailed", "failed"),
        "x-p": ("xfailed", "passed"),
        "f-x": ("failed", "xfailed"),
        "s-f": ("skipped", "failed"),
    }
    base = [item(name, old) for name, (old, _) in outcomes.items()]
    run = [item(name, new) for name, (_, new) in outcomes.items()]
    diff = compare([*base, item("gone")], [*run, item("new"), item("new-bad", "failed")])
    assert [c.id for c in diff.new_failures] == ["new-bad", "p-f", "s-f", "x-f"]
    assert diff.new_failures[0].before == ""
    assert [c.id for c in diff.fixed] == ["f-p", "x-p"]
    assert [c.id for c in diff.still_failing] == ["f-f", "f-x"]
    assert [c.id for c in diff.added] == ["new", "new-bad"]
    assert [c.id for c in diff.removed] == ["gone"]
    assert (diff.base_items, diff.run_items) == (9, 10)


def test_another_engine_version_is_named_but_no_change() -> None:
    old, new = (replace(item(), engine=f"sim {version}") for version in ("1.0", "1.1"))
    diff = change(old, new)
    assert diff.is_empty
    assert as_terminal(diff)[:2] == ["1 item before, 1 now: no change.", "sim 1.0 before, sim 1.1 now."]
    assert change(old, old).engines == ()


def test_a_failing_item_that_fails_in_another_check_is_a_new_failure() -> None:
    diff = change(item(outcome="failed", accuracy=BAD, tiled=OK), item(outcome="failed", accuracy=BAD, tiled=BAD))
    assert [(c.checks, c.more) for c in diff.new_failures] == [((("tiled", 2.0),), True)]
    assert not change(item(outcome="failed", accuracy=BAD), item(outcome="failed", accuracy=BAD)).new_failures


def test_any_growth_counts_and_the_largest_factor_is_first() -> None:
    least = math.nextafter(0.5, 1)
    base = [item(name, accuracy=OK, arithmetic=OK) for name in "abcd"]
    run = [
        item("a", accuracy=replace(OK, ratio=least), arithmetic=replace(OK, ratio=0.25)),
        item("b", accuracy=replace(OK, ratio=1.0), arithmetic=OK),
        item("c", accuracy=replace(OK, ratio=math.inf), arithmetic=replace(OK, ratio=0.0)),
        item("d", accuracy=OK, arithmetic=OK),
    ]
    diff = compare(base, run)
    assert [(c.id, c.check, c.after) for c in diff.grown] == [
        ("c", "accuracy", math.inf),
        ("b", "accuracy", 1.0),
        ("a", "accuracy", least),
    ]
    assert [c.factor for c in diff.grown[:2]] == [math.inf, 2.0]
    assert diff.grown[2].factor > 1
    assert [(c.id, c.factor) for c in diff.shrunk] == [("c", math.inf), ("a", 2.0)]


def test_a_check_without_verdict_has_no_ratio_to_compare() -> None:
    diff = change(item(accuracy=CheckRecord(inconclusive=10)), item(accuracy=OK))
    assert (diff.grown, diff.shrunk) == ((), ())


def losses(old: Record, new: Record) -> list[tuple[str, str, object, object]]:
    diff, back = change(old, new), change(new, old)
    mirrored = [CoverageChange(c.id, c.what, c.name, c.after, c.before) for c in back.gained]
    assert list(diff.lost) == mirrored, "a loss one way is a gain the other way"
    return [(c.what, c.name, c.before, c.after) for c in diff.lost]


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (item(), item(), []),
        (item(), item("a", "skipped"), [("outcome", "", "passed", "skipped")]),
        (item(), item("a", "xfailed"), [("outcome", "", "passed", "xfailed")]),
        (item("a", "failed"), item("a", "skipped"), [("outcome", "", "failed", "skipped")]),
        (item(), item("a", "failed"), []),
        (item(), item(cases=8, accuracy=replace(OK, passed=8)), [("cases", "", 10, 8)]),
        (item(), item(accuracy=OK, tiled=OK), []),
        (item(accuracy=OK, tiled=OK), item(), [("check", "tiled", 10, 0)]),
        (item(accuracy=OK, tiled=CheckRecord(inconclusive=10)), item(), []),
        (item(), item(accuracy=replace(OK, passed=7, inconclusive=3)), [("inconclusive", "accuracy", 0, 3)]),
        (item(), item(accuracy=replace(OK, passed=7, mistrusted=3)), [("verdicts", "accuracy", 10, 7)]),
        (item(), item(accuracy=replace(OK, passed=7, failed=3)), []),
        (
            item(),
            item(cases=8, accuracy=replace(OK, passed=4, inconclusive=2)),
            [("cases", "", 10, 8), ("inconclusive", "accuracy", 0, 2), ("verdicts", "accuracy", 10, 4)],
        ),
        (item(), item(accuracy=replace(OK, width=2.0)), []),
        (
            item(accuracy=replace(OK, width=2.0)),
            item(accuracy=replace(OK, width=3.0)),
            [("sharpness", "accuracy", 2.0, 3.0)],
        ),
        (item(), item(accuracy=replace(OK, width=2.5)), [("sharpness", "accuracy", 1.0, 2.5)]),
        (
            replace(item(), coverage=("p", "q", "r")),
            replace(item(), coverage=("p",), gaps=("q", "z")),
            [("reached", "q", "reached", "gap"), ("reached", "r", "reached", ""), ("gap", "z", "", "gap")],
        ),
    ],
)
def test_lost_coverage_is_listed(old: Record, new: Record, lost: list[tuple[str, str, object, object]]) -> None:
    assert losses(old, new) == lost


def test_coverage_missing_after_a_new_failure_is_no_loss() -> None:
    whole = replace(item(tiled=OK), coverage=("p", "q"))
    cut_off = item(outcome="failed", cases=2, accuracy=BAD)
    assert not change(whole, cut_off).lost
    assert not change(cut_off, whole).gained
    assert {c.what for c in change(replace(whole, outcome="failed"), cut_off).lost} >= {"cases", "check", "reached"}


def test_a_selection_leaves_no_item_and_no_check_out() -> None:
    base, run = [item(accuracy=OK, tiled=OK), item("b")], [item(cases=8, accuracy=replace(OK, passed=8))]
    diff = compare(base, run, filtered=True)
    assert not diff.removed
    assert [c.what for c in diff.lost] == ["cases"]


def test_float_kernels_of_another_processor_have_other_last_bits() -> None:
    worse = replace(OK, ratio=0.75)
    here, there = item(float=OK, accuracy=OK), item(float=worse, accuracy=worse)
    assert [c.check for c in change(here, there).grown] == ["float", "accuracy"]
    assert [c.check for c in compare([here], [there], elsewhere=True).grown] == ["accuracy"]


def test_a_defect_of_another_processor_is_no_lost_coverage() -> None:
    here, there = item(accuracy=OK), item(accuracy=replace(OK, passed=7, defects=2, mistrusted=1))
    placed = [replace(record, engine="onnxruntime") for record in (here, there)]

    def moved(old: Record, new: Record) -> Diff:
        return compare([old], [new], elsewhere=True)

    assert [c.what for c in change(*placed).lost] == ["verdicts"]
    assert not moved(*placed).lost
    worse = replace(placed[0], checks={"accuracy": replace(OK, ratio=0.9)})
    assert not moved(placed[1], worse).grown
    assert moved(replace(worse, checks={"accuracy": OK}), worse).grown
    unmade = replace(placed[0], checks={"accuracy": replace(OK, passed=7, inconclusive=3)})
    assert not moved(placed[1], unmade).lost
    fewer = replace(placed[1], checks={"accuracy": replace(OK, passed=6, defects=2, mistrusted=1)})
    assert [c.what for c in moved(placed[0], fewer).lost] == ["verdicts"]
    own = [replace(record, engine="builtin") for record in (here, there)]
    assert [c.what for c in moved(*own).lost] == ["verdicts"], "our own functions give the same on every processor"


def test_two_records_of_one_item_cannot_be_compared() -> None:
    with pytest.raises(CaseError, match="the run: id: 'a' is there twice"):
        compare([item()], [item(), item()])


names = st.sampled_from(["a", "b", "c", "conv2d-w8a8-ideal"])
checks = st.builds(
    CheckRecord,
    passed=st.integers(0, 3),
    failed=st.integers(0, 2),
    mistrusted=st.integers(0, 2),
    inconclusive=st.integers(0, 2),
    ratio=st.floats(0) | st.just(math.nan),
    width=st.sampled_from([0.0, 1.0, 3.0, math.inf]),
)
entries = st.lists(st.sampled_from("pqr"), unique=True).map(tuple)
runs = st.lists(
    st.builds(
        Record,
        id=names,
        op=names,
        kind=st.sampled_from(["cases", "golden"]),
        outcome=st.sampled_from(["passed", "failed", "xfailed", "skipped", "error"]),
        cases=st.integers(0, 5),
        checks=st.dictionaries(st.sampled_from(["accuracy", "tiled", "plugin"]), checks, max_size=3),
        coverage=entries,
        gaps=entries,
        failure=st.text(max_size=5),
    ),
    unique_by=lambda record: record.id,
)
quiet = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@quiet
@given(runs)
def test_a_run_does_not_differ_from_itself(run: list[Record]) -> None:
    diff = compare(run, run)
    assert diff.is_empty
    assert {f.name for f in fields(diff) if getattr(diff, f.name)} <= {"base_items", "run_items", "still_failing"}
    assert "no change" in as_terminal(diff)[0]


@quiet
@given(runs, runs)
def test_the_order_of_records_changes_no_byte(base: list[Record], run: list[Record]) -> None:
    shuffled = list(reversed(base)), sorted(run, key=lambda record: (record.failure, record.id))
    for form in ("terminal", "markdown", "json"):
        assert render(compare(base, run), form) == render(compare(*shuffled), form)


@quiet
@given(runs, runs)
def test_a_reversed_diff_swaps_grown_and_shrunk(base: list[Record], run: list[Record]) -> None:
    there, back = compare(base, run), compare(run, base)
    assert [(c.id, c.check, c.factor) for c in there.grown] == [(c.id, c.check, c.factor) for c in back.shrunk]
    assert [c.id for c in there.added] == [c.id for c in back.removed]
    assert len(there.lost) == len(back.gained)
    assert there.is_empty == back.is_empty
    json.loads(as_json(there), parse_constant=pytest.fail)


def sample() -> Diff:
    base = [item("add-a8"), item("conv2d-w8a8"), item("gone"), item("relu-a8", "failed", accuracy=BAD)]
    run = [
        replace(item("add-a8", "failed", accuracy=BAD), failure="1 of 100 outside; case 4f2a"),
        item("conv2d-w8a8", accuracy=replace(OK, passed=8, ratio=0.75, mistrusted=2)),
        item("relu-a8"),
        replace(item("new"), gaps=("x=1",)),
    ]
    return compare(base, run)


TERMINAL = """\
4 items before, 4 now: 1 new failure, 1 fixed, 1 error grown, 1 error shrunk, 1 loss of coverage,
  1 item added, 1 item removed.

new failures
  item    before  now     checks         failure
  ------  ------  ------  -------------  ---------------------------
  add-a8  passed  failed  accuracy 2.00  1 of 100 outside; case 4f2a

items removed
  item  kind   outcome  cases  gaps
  ----  -----  -------  -----  ----
  gone  cases  passed      10     -

coverage lost
  item         what                before  now
  -----------  ------------------  ------  ---
  conv2d-w8a8  accuracy: verdicts      10    8

errors grown
  item         check     before   now  factor
  -----------  --------  ------  ----  ------
  conv2d-w8a8  accuracy     0.5  0.75    x1.5

fixed
  item     before  now
  -------  ------  ------
  relu-a8  failed  passed

errors shrunk
  item     check     before  now  factor
  -------  --------  ------  ---  ------
  relu-a8  accuracy       2  0.5      x4

items added
  item  kind   outcome  cases  gaps
  ----  -----  -------  -----  ----
  new   cases  passed      10     1
"""


def test_a_small_diff_renders_as_expected_on_a_terminal() -> None:
    assert render(sample(), "terminal") == TERMINAL


def test_a_new_failure_is_listed_as_grown_only_in_json() -> None:
    worse = item("add-a8", "failed", accuracy=BAD)
    diff = change(item("add-a8"), worse)
    assert render(diff, "terminal").count("add-a8") == 1
    assert [grown["check"] for grown in json.loads(as_json(diff))["grown"]] == ["accuracy"]
    tiled = replace(OK, passed=9, failed=1, ratio=3.0)
    further = change(worse, replace(worse, checks={"accuracy": replace(BAD, ratio=4.0), "tiled": tiled}))
    assert [grown.check for grown in further.grown_otherwise] == ["accuracy"]


def test_markdown_holds_the_same_rows() -> None:
    text = as_markdown(sample())
    assert text.startswith("## Compared with the baseline\n\n4 items before, 4 now: 1 new failure, 1 fixed, ")
    assert "| `add-a8` | `passed` | `failed` | `accuracy 2.00` | `1 of 100 outside; case 4f2a` |\n" in text
    assert "### Errors grown (1)\n" in text
    assert "Still failing" not in text


def test_json_holds_numbers_and_a_version() -> None:
    plain = json.loads(as_json(sample()))
    assert plain["version"] == 1
    assert plain["grown"][0] == {
        "id": "add-a8",
        "check": "accuracy",
        "before": 0.5,
        "after": 2.0,
        "factor": 4.0,
        "lsb_before": None,
        "lsb_after": None,
        "grown_lsb": 0.0,
    }
    assert plain["lost"] == [{"id": "conv2d-w8a8", "what": "verdicts", "name": "accuracy", "before": 10, "after": 8}]
    infinite = change(item(), item(accuracy=replace(OK, ratio=math.inf)))
    assert json.loads(as_json(infinite))["grown"][0]["factor"] == "inf"


def test_json_is_indented_as_the_standard_library_does() -> None:
    for failure in ('1e-7 \u00d7 "a": [1, {}]\\n', "half of a pair: \ud800"):
        text = as_json(change(item(), replace(item(outcome="failed", accuracy=BAD), failure=failure)))
        assert json.loads(text)["new_failures"][0]["failure"] == failure
        assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"


def test_a_long_list_is_cut_on_a_terminal_with_a_pointer() -> None:
    diff = compare([item(f"i{n}" * 50) for n in range(30)], [])
    lines = as_terminal(diff, limit=4)
    assert lines[-1] == "  and 26 more: --format json lists all"
    assert max(map(len, lines)) <= 100
    with pytest.raises(ValueError, match="form: must be one of terminal, markdown, json, got 'html'"):
        render(diff, "html")


def test_a_repaired_item_is_listed_only_as_fixed() -> None:
    """A failure ends its item, so that results behind it were hidden before the repair, not worse."""
    hidden = CheckRecord(passed=1, ratio=0.1, elements=2, width=1.0)
    whole = CheckRecord(passed=10, inconclusive=3, ratio=0.9, elements=90, width=1.0)
    failed = replace(item(outcome="failed", cases=2, arithmetic=BAD, float=hidden, accuracy=hidden), gaps=())
    passed = replace(item(cases=13, arithmetic=OK, float=whole, accuracy=whole), gaps=("data=ties",))
    repaired, broken = change(failed, passed), change(passed, failed)
    assert [c.id for c in repaired.fixed] == ["a"]
    assert (repaired.grown, repaired.lost) == ((), ())
    assert [c.check for c in repaired.shrunk] == ["arithmetic"]
    assert [c.id for c in broken.new_failures] == ["a"]
    assert (broken.shrunk, broken.gained, broken.lost) == ((), (), ())
    assert [c.check for c in broken.grown] == ["arithmetic"]
