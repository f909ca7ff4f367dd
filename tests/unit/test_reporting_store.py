"""A run is kept as the same bytes whatever its order, whole or not at all, and read back with the line at fault."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantizer.core.errors import CaseError
from quantizer.core.record import CheckRecord, Record, read_records
from quantizer.core.record_model import read_record
from quantizer.reporting.store import read_run, write_run, write_timings


def records() -> list[Record]:
    tiled = CheckRecord(inconclusive=2, reasons=("no window",))
    return [
        Record("b-w8a8-ideal", "b", "cases", "passed", scheme="w8a8", platform="ideal", cases=3),
        Record("a-golden", "a", "golden", "failed", failure="code 3 is 4"),
        Record(
            "a-w8a8-ideal",
            "a",
            "cases",
            "failed",
            cases=2,
            checks={"tiled": tiled, "arithmetic": CheckRecord(passed=1, failed=1, ratio=float("inf"), elements=9)},
            coverage=("stride=1", "stride=2"),
            metrics={"sqnr_db": 40.5},
            failure="1 of 9 outside",
        ),
    ]


def line(**changes: object) -> str:
    raw = {"version": 1, "id": "a", "op": "a", "kind": "cases", "outcome": "passed"} | changes
    return json.dumps(raw)


def test_written_records_are_read_sorted_by_id(tmp_path: Path) -> None:
    write_run(tmp_path / "new", records(), {"items": 3})
    expected = sorted(records(), key=lambda record: record.id)
    assert read_run(tmp_path / "new") == expected
    assert read_run(tmp_path / "new" / "records.jsonl") == expected
    assert json.loads((tmp_path / "new" / "summary.json").read_text()) == {"items": 3}


def test_order_does_not_change_the_bytes(tmp_path: Path) -> None:
    shuffled = records()
    random.Random(3).shuffle(shuffled)
    shuffled[0], shuffled[-1] = shuffled[-1], shuffled[0]
    write_run(tmp_path / "x", records(), {"a": 1, "b": 2})
    write_run(tmp_path / "y", shuffled, {"b": 2, "a": 1})
    for name in ("records.jsonl", "summary.json"):
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["records.jsonl", "summary.json"]


def test_coverage_and_reasons_are_written_as_sorted_sets(tmp_path: Path) -> None:
    record = Record(
        "a", "a", "cases", "passed", checks={"tiled": CheckRecord(reasons=("z", "b", "z"))}, coverage=("q", "p", "q")
    )
    write_run(tmp_path, [record], {})
    assert read_run(tmp_path)[0].coverage == ("p", "q")
    assert read_run(tmp_path)[0].checks["tiled"].reasons == ("b", "z")


def test_timings_are_stored_next_to_the_records(tmp_path: Path) -> None:
    write_timings(tmp_path, {"b": 0.5, "a": 2.0})
    assert (tmp_path / "timings.jsonl").read_text() == '{"id":"a","seconds":2.0}\n{"id":"b","seconds":0.5}\n'


def test_a_write_that_fails_leaves_the_old_files_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, records(), {})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CaseError, match=r"records\.jsonl: cannot be written: no space left on device"):
        write_run(tmp_path, records()[:1], {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_summary_that_is_not_json_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_run(tmp_path / "run", records(), {"path": tmp_path})
    assert not (tmp_path / "run").exists()


def test_two_records_of_one_item_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="'a-golden' is there twice"):
        write_run(tmp_path / "run", [*records(), records()[1]], {})
    assert not (tmp_path / "run").exists()


def test_duplicate_ids_name_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(f"{line(id='a')}\n\n{line(id='b')}\n{line(id='a')}\n")
    with pytest.raises(CaseError) as error:
        read_run(file)
    assert str(error.value) == f"{file}:4: id: 'a' is already the id of line 1. A run has one record per item."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", ":1: not JSON"),
        (f"{line()}\n[1]", ":2: the file: "),
        (line(outcome=3), ":1: outcome: "),
        (line(colour="red"), ":1: colour: "),
        (line(id=""), ":1: id: must have at least 1 characters"),
        (line(cases=-1), ":1: cases: must be at least 0, got -1."),
        (line(checks={"tiled": {"inconclusive": -2}}), ":1: checks.tiled.inconclusive: must be at least 0, got -2."),
        (line(checks={"tiled": {"ratio": "much"}}), ":1: "),
        (line(checks={"tiled": {"ratio": float("nan")}}), ":1: checks.tiled.ratio: must be finite"),
        (line(checks={"tiled": {"width": -0.5}}), ":1: checks.tiled.width: must be at least 0, got -0.5."),
        (line(checks={"tiled": {"ratio": 10**400}}), ":1: "),
        (f"\n\n{line(metrics={'sqnr_db': 'loud'})}", ":3: "),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(text)
    with pytest.raises(CaseError) as error:
        read_run(file)
    assert str(error.value).startswith(f"{file}{says}")


values = st.sampled_from(
    [0, 1, -1, 2**70, 1.0, 0.5, -0.0, 1e999, math.nan, True, None, "", "a", "1", "inf", "\ud800", [], ["a"], [1], {}]
)
counts = st.dictionaries(st.sampled_from([*CheckRecord.__struct_fields__, "colour"]), values, max_size=3)
fields = {
    **dict.fromkeys(Record.__struct_fields__, values),
    "checks": st.dictionaries(st.sampled_from(["tiled", ""]), counts, max_size=2) | values,
    "metrics": st.dictionaries(st.sampled_from(["sqnr_db", "version"]), values, max_size=2) | values,
    "version": values,
    "colour": values,
}
changed = st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
)


@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(changed, st.sets(st.sampled_from(["version", "id", "op", "kind", "outcome"]), max_size=1))
def test_the_fast_record_reader_accepts_the_same_as_the_model(changes: dict[str, object], gone: set[str]) -> None:
    raw = json.loads(line()) | changes
    text = json.dumps({name: raw[name] for name in sorted(raw) if name not in gone})
    outcomes = []
    for read in (
        lambda: next(read_records([text.replace(": ", ":")], "r")),
        lambda: read_record(json.loads(text), "r:1"),
    ):
        try:
            outcomes.append(read())
        except CaseError as err:
            outcomes.append(str(err))
    assert repr(outcomes[0]) == repr(outcomes[1])


def test_an_infinite_ratio_and_keys_in_any_order_are_read(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    whole = {
        "id": "a",
        "op": "a",
        "kind": "cases",
        "outcome": "failed",
        "checks": {"tiled": {"ratio": "inf"}},
        "version": 1,
    }
    file.write_text(json.dumps(whole) + "\r\n" + json.dumps(dict(reversed(whole.items())) | {"id": "b"}))
    first, second = read_run(file)
    assert first.checks == second.checks == {"tiled": CheckRecord(ratio=math.inf)}


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CaseError, match=r"nowhere: cannot be read: no such file or directory\. Name the directory of a run"
    ):
        read_run(tmp_path / "nowhere")
    with pytest.raises(CaseError, match=r"holds no records\.jsonl"):
        read_run(tmp_path)
    (tmp_path / "records.jsonl").write_bytes(b"{}\xff")
    with pytest.raises(CaseError, match="byte 2 is not UTF-8"):
        read_run(tmp_path)


def test_an_empty_run_is_read_as_no_records(tmp_path: Path) -> None:
    write_run(tmp_path, [], {})
    assert read_run(tmp_path) == []
