"""Damaged Compass IR is refused with a QuantizerError, or is a graph that is written and read back unchanged."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantizer.core.errors import FormatError, QuantizerError
from quantizer.ir.formats.compass import read, write
from quantizer.ir.formats.compass_text import COMPASS_DTYPES, format_names, format_value, parse_names, parse_value
from quantizer.ir.graph import difference, same
from quantizer.ir.verify import verify

REFERENCE = Path(__file__).parents[2] / "cases" / "reference"
FILES = [
    *(f"compass/{case}" for case in ("conv3x3/pc_asym/quant", "elt_add/ext/quant", "fc/default/float")),
    *(f"compass/{case}" for case in ("act_sigmoid/a16/quant", "layernorm/pc_asym/quant", "concat/pc_asym/quant")),
    "compass_net/trigger_float/quant",
]
WORDS = (
    b"nan", b"inf", b"-1", b"0", b"[]", b"[[]]", b"[[[[", b"]", b"=", b",", b"true", b"1e999", b"99999999999999999999",
    b"int4", b"aligned_int4", b"bfloat16", b"float8_e4m3fn", b"None", b"\x00", b"\xff", b"'", b"-", b"4294967296",
)  # fmt: skip


def _flip(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + bytes([text[at] ^ (1 << rng.randrange(8))]) + text[at + 1 :]


def _lines(rng: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case _:
            key, _, value = lines[i].partition(b"=")
            lines[i] = key + b"=" + lines[j].partition(b"=")[2] if value else lines[j]
    return b"\n".join(lines)


def _number(rng: random.Random, text: bytes) -> bytes:
    """Replace one run of digits."""
    starts = [i for i in range(1, len(text)) if text[i : i + 1].isdigit() and not text[i - 1 : i].isdigit()]
    if not starts:
        return text
    at = rng.choice(starts)
    end = at
    while text[end : end + 1].isdigit():
        end += 1
    value = int(text[at:end])
    choices = (value + 1, value - 1, -value, value * 2, 0, 255, 1 << 31, 1 << 63, 1 << 64, rng.randrange(1 << 40))
    return text[:at] + str(rng.choice(choices)).encode() + text[end:]


def _word(rng: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    i = rng.choice([i for i, line in enumerate(lines) if line])
    key, _, value = lines[i].partition(b"=")
    if rng.random() < 0.5:
        at = rng.randrange(len(value) + 1)
        value = value[:at] + rng.choice(WORDS) + value[at + rng.randrange(2) :]
    else:
        value = rng.choice(WORDS)
    lines[i] = key + b"=" + value
    return b"\n".join(lines)


def _truncate(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randrange(len(text))]


def _mutated(rng: random.Random, text: bytes, blob: bytes) -> tuple[bytes, bytes]:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice((_flip, _flip, _lines, _lines, _number, _number, _word, _word, _truncate))
        if text.strip():
            text = change(rng, text)
        if blob and rng.random() < 0.2:
            blob = rng.choice((_flip, _truncate))(rng, blob)
    return text, blob


@pytest.mark.parametrize("count", [1500, pytest.param(5000, marks=pytest.mark.nightly)])
def test_damaged_files_are_refused_or_sound(tmp_path: Path, count: int) -> None:
    """Each damaged file raises a QuantizerError, or yields a graph that survives writing and reading."""
    rng = random.Random(20240611)
    originals = [((REFERENCE / f"{name}.txt").read_bytes(), (REFERENCE / f"{name}.bin").read_bytes()) for name in FILES]
    text_path, bin_path = tmp_path / "damaged.txt", tmp_path / "damaged.bin"
    outcomes: Counter[str] = Counter()
    for number in range(count):
        text, blob = _mutated(rng, *originals[number % len(originals)])
        text_path.write_bytes(text)
        bin_path.write_bytes(blob)
        try:
            graph = read(text_path, bin_path)
            verify(graph)
        except QuantizerError as err:
            assert str(err).startswith(str(tmp_path)), err
            outcomes["refused"] += 1
            continue
        write(graph, tmp_path / "again.txt", tmp_path / "again.bin")
        assert same(graph, read(tmp_path / "again.txt", tmp_path / "again.bin")) is None, text
        outcomes["sound"] += 1
    assert outcomes["refused"] > count // 2, outcomes
    assert outcomes["sound"] > count // 10, outcomes


_scalars = (
    st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.sampled_from(list(COMPASS_DTYPES.values()))
    | st.sampled_from(["NONE", "None", "a b", "nan", "\u00e4", "1_0"])
)
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12)


@given(_values)
def test_every_written_value_is_read_back(value: object) -> None:
    """Numbers, formats, texts and lists survive the text form bit for bit; what would not is refused."""
    assert difference("value", parse_value(format_value(value)), value) is None  # type: ignore[arg-type]


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused_with_a_value_error(text: str) -> None:
    """Reading never fails in another way than ValueError, and what was read can be written and read again."""
    try:
        value = parse_value(text.strip(" \t"))
    except ValueError:
        return
    try:
        written = format_value(value)
    except ValueError:
        return
    assert difference("value", parse_value(written), value) is None


@given(st.lists(st.text(min_size=1, max_size=6), max_size=4))
def test_names_are_kept_unchanged(names: list[str]) -> None:
    """A list of names is written such that the same names are read, or refused."""
    try:
        text = format_names(names)
    except ValueError:
        assert any(set(name) & set("[],='\"") or name != name.strip() or not name.isprintable() for name in names)
        return
    assert parse_names(text) == tuple(names)


@pytest.mark.parametrize("count", [10_000, 1_000_000])
def test_deep_lists_are_refused(tmp_path: Path, count: int) -> None:
    """Nesting is bounded before it costs stack or time."""
    text = (REFERENCE / f"{FILES[0]}.txt").read_text().replace("num_output=6", f"num_output={'[' * count}{']' * count}")
    (tmp_path / "deep.txt").write_text(text)
    with pytest.raises(FormatError, match="num_output: lists are nested deeper than 16"):
        read(tmp_path / "deep.txt", REFERENCE / f"{FILES[0]}.bin")
