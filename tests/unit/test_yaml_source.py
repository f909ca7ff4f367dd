"""Reading YAML: types of scalars, refusals, and positions."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

import pytest

from quantizer.core.errors import SpecError
from quantizer.core.wording import shown_path
from quantizer.core.yaml_source import MAX_BYTES, MAX_DEPTH, Mark, load_yaml, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("off", "off"), ("y", "y"), ("n", "n"),
        ("true", True), ("false", False), ("True", True), ("FALSE", False), ("tRUE", "tRUE"),
        ("null", None), ("~", None), ("", None), ("nULL", "nULL"),
        ("12", 12), ("012", 12), ("-7", -7), ("+7", 7), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"), ("1_000", "1_000"),
        ("1e-3", 0.001), ("1E5", 1e5), (".5", 0.5), ("5.", 5.0), ("-1.25e+2", -125.0), ("1.0", 1.0),
        (".inf", math.inf), ("-.INF", -math.inf), ("+.inf", math.inf),
        ("190:20:30", "190:20:30"), ("2001-12-14", "2001-12-14"), ("1.2.3", "1.2.3"), ("-", "-"), (".", "."), ("e5", "e5"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_float() -> None:
    assert math.isnan(scalar(".nan"))  # type: ignore[arg-type]


def test_quoted_and_block_scalars_stay_text() -> None:
    data, _ = load_yaml('a: \'1\'\nb: "true"\nc: |\n  2\nd: >-\n  3\n  4\ne: ""\n')
    assert data == {"a": "1", "b": "true", "c": "2\n", "d": "3 4", "e": ""}


def test_positions_of_keys_and_values() -> None:
    data, positions = load_yaml('a: {b: [1, "x"], é: 2}\nc:\n  - d: 3\n    e:\n', "file.yaml")
    assert data == {"a": {"b": [1, "x"], "é": 2}, "c": [{"d": 3, "e": None}]}
    assert positions.values[()] == Mark(1, 1)
    assert positions.keys[("a", "b")] == Mark(1, 5)
    assert positions.values[("a", "b")] == Mark(1, 8)
    assert positions.values[("a", "b", 1)] == Mark(1, 12)
    assert positions.keys[("a", "é")] == Mark(1, 18)
    assert positions.values[("a", "é")] == Mark(1, 21)
    assert positions.values[("c", 0)] == Mark(3, 5)
    assert positions.values[("c", 0, "d")] == Mark(3, 8)
    assert positions.keys[("c", 0, "e")] == Mark(4, 5)


def test_a_missing_place_is_reported_at_its_nearest_parent() -> None:
    _, positions = load_yaml("a:\n  b: 1\n")
    assert positions.mark(("a", "missing", 3)) == Mark(2, 3)
    assert positions.mark(("a", "missing"), key=True) == Mark(2, 3)
    assert positions.mark(("nothing",)) == Mark(1, 1)


def test_a_message_shows_the_line_and_a_caret() -> None:
    _, positions = load_yaml("a:\n  b: two\n", "specs/x.yaml")
    assert positions.message(("a", "b"), "must be 2.") == "specs/x.yaml:2:6: a.b: must be 2.\n  |   b: two\n  |      ^"
    assert positions.message(("a", "b"), "no.", key=True) == "specs/x.yaml:2:3: a.b: no.\n  |   b: two\n  |   ^"


def test_a_long_line_is_shown_around_its_caret() -> None:
    text = f"a: [{', '.join(map(str, range(1000, 1200)))}]\n"
    _, positions = load_yaml(text)
    for index in (0, 57, 199):
        _, line, caret = positions.message(("a", index), "wrong.").split("\n")
        assert len(line) < 120
        assert line[caret.index("^") :].startswith(str(1000 + index))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1", "key 'a' occurs here a second time; the first is at 1:1"),
        ("x: {a: 1, a: 2}", "1:11", "key 'a' occurs here a second time; the first is at 1:5"),
        ('a: 1\n"a": 2\n', "2:1", "key 'a' occurs here a second time"),
        ("a: &x 1\nb: *x\n", "1:4", "anchor &x"),
        ("b: *x\n", "1:4", "alias *x"),
        ("- &a [x]\n- [*a, *a]\n", "1:3", "anchor &a"),
        ("a: !!python/object:os.system {}\n", "1:4", "tag !!python/object:os.system"),
        ("a: !!int '3'\n", "1:4", "tag !!int"),
        ("a: !mine 3\n", "1:4", "tag !mine"),
        ("a: ! 3\n", "1:4", "tag !"),
        ("a: 1\n---\nb: 2\n", "2:1", "a second document"),
        ("a: 1\n...\n---\n", "3:1", "a second document"),
        ("<<: {a: 1}\n", "1:1", "merge key <<"),
        ("1: a\n", "1:1", 'a key must be text, got 1. Write "1" in quotes'),
        ("a:\n  true: 1\n", "2:3", "a key must be text, got true"),
        ("? \n: 1\n", "1:2", "a key must be text, got nothing"),
        ("? [a]\n: 1\n", "1:3", "a key must be text, got a list or a mapping"),
        ("a:\n\tb: 1\n", "2:1", "Indent with spaces"),
        ("a: [1, 2\nb: 3\n", "2:2", "that starts at 1:4"),
        ("a: {b: x[0]}\n", "1:9", "Quote a text"),
        ("a: b: c\n", "1:5", "Quote a text"),
        ("a: 'x\n", "2:1", "not YAML"),
        ("a: \x01\n", "1:4", "character U+0001"),
        ("a: 1\nb: \x00\n", "2:4", "character U+0000"),
        ("a: \ud800\n", "1:4", "character U+D800"),
        ("a: " + "9" * 41 + "\n", "1:4", "a number of 41 digits"),
        ("a: " + "9" * 5000 + "\n", "1:4", "a number of 5000 digits"),
        ("a: 1e999\n", "1:4", "beyond the largest float64"),
        ("a: 1\n b: 2\n", "2:3", "not YAML"),
        ("%YAML 3.0\n---\na: 1\n", "1:1", "not YAML"),
        ("@a: 1\n", "1:1", "not YAML"),
    ],
)
def test_refusals_name_place_and_reason(text: str, place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_yaml(text, "f.yaml")
    message = str(caught.value)
    assert message.startswith(f"f.yaml:{place}: ")
    assert words in message
    assert message.count("f.yaml:") == 1


def test_a_refusal_shows_the_line_and_a_caret() -> None:
    with pytest.raises(SpecError) as caught:
        load_yaml("a: 1\nbcd: {x: 1, x: 2}\n", "f.yaml")
    assert str(caught.value).split("\n")[1:] == ["  | bcd: {x: 1, x: 2}", "  | " + " " * 12 + "^"]


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_depth_is_bounded_exactly() -> None:
    assert MAX_DEPTH == 40
    data, _ = load_yaml(nested(MAX_DEPTH))
    assert data != []
    with pytest.raises(SpecError, match=rf"^t:1:{MAX_DEPTH + 1}: nested deeper than {MAX_DEPTH} levels"):
        load_yaml(nested(MAX_DEPTH + 1), "t")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900_000,
        "{a: " * 200_000,
        "- " * 500_000,
        "? " * 500_000,
        "a" * 999_999 + ": 1",
        "a\n" * 500_000,
        "a: [b: " * 90_000,
    ],
)
def test_a_hostile_file_is_answered_quickly(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(SpecError):
        load_yaml(text)
    assert time.process_time() - started < 2.0


def test_size_is_bounded_for_text_and_files(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("#" * MAX_BYTES, encoding="utf-8")
    assert load_yaml(path)[0] is None
    path.write_text("#" * (MAX_BYTES + 1), encoding="utf-8")
    with pytest.raises(SpecError, match=f"more than {MAX_BYTES} bytes"):
        load_yaml(path)
    with pytest.raises(SpecError, match=f"at most {MAX_BYTES}"):
        load_yaml("#" * (MAX_BYTES + 1))


def test_bytes_that_are_not_utf8_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\nbé: ".encode() + b"\xe9\n")
    with pytest.raises(SpecError, match=r"latin\.yaml:2:5: byte 0xe9 is not UTF-8") as caught:
        load_yaml(path)
    assert "bé: " in str(caught.value)


def test_a_byte_order_mark_and_crlf_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: x\r\n")
    data, positions = load_yaml(path)
    assert data == {"a": 1, "b": {"c": "x"}}
    assert positions.values[("b", "c")] == Mark(3, 6)
    assert positions.lines[2] == "  c: x"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone\.yaml: cannot be read: no such file"):
        load_yaml(tmp_path / "gone.yaml")
    with pytest.raises(SpecError, match="cannot be read: is a directory"):
        load_yaml(tmp_path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_yaml(tmp_path / "nul\0byte.yaml")


def test_paths_below_the_working_directory_are_shown_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "in"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert shown_path(inner / "a" / "b.yaml") == "a/b.yaml"
    assert shown_path(tmp_path / "b.yaml") == str(tmp_path / "b.yaml")
    assert shown_path(tmp_path / "in..yaml") == str(tmp_path / "in..yaml")
    assert shown_path(inner / "..x" / "b.yaml") == "..x/b.yaml"
