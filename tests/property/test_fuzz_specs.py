"""Thousands of damaged specs, schemes and platforms are read, or refused with a place."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from quantizer.core.domains import draw_order
from quantizer.core.errors import QuantizerError
from quantizer.core.library import load_schemes, load_spec, read_platform, shipped_folder, shipped_platforms
from quantizer.core.spec import Spec

MUTATIONS = 5200
SPECS = ("add", "argmax", "conv2d", "reshape", "softmax")
NASTY = [
    "", "~", "null", "true", "no", "0", "-1", "1", "3.5", "1e999", ".inf", ".nan", "'", '"', "[]", "{}", "[[]]", "{a: 1}", "[1, x]",
    "*a", "&a b", "!!python/none x", "? x", "|", ">-", "%", "@", "`", "#", "- -", ": :", "\t", "\u2028", "\ufeff", "\ud7ff", "é", "💥",
    "__import__('os')", "h.__class__", "10**9", "9" * 30, "9" * 60, "'a' * 9", "(" * 90, "[" * 60, "max(", "h // 0", "shape[9]", "len(h)",
    "x if y else z", "lambda: 0", "same_as(q)", "{groups.__class__}", "{groups", "independent", "halo", "index", "int", "shape", "x" * 500,
    '"[1]"', '"(1, 2)"', '"1 // 0"', '"[]"', "[a, b]", "[a, 1, 2.5]", "[[1, 2], [3]]", "1 == 1", "not 1", '"[h, h]"', "{min: 1}",
    "enum, choices: [a, 1], bins: {z: {min: 2}}", "int, choices: [a, 1]", "float", "bool", "1, choices: [a]", "1, length: 2", "1, product: 7",
    "1, broadcasts_to: h", "1, rank: [0, 9]", "1, rank: [3, 1]", "1, multiple_of: 0", "1, multiple_of: -3", "1, default: [1]", "{n}", "halo, axis: h",
    "kh", "groups", "h", "shape", "axis", "i", "1 < 2", "-9223372036854775808", "4611686018427387905", "0o777", "0x7f", "1:30:00",
]  # fmt: skip
Mutation = Callable[[random.Random, bytes], bytes]


def flip_a_byte(rng: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def put_a_byte(rng: random.Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(b"\x00\t\n\r :,[]{}#&*!|>'\"%@`-?.\x7f\x85\xc3\xff").to_bytes() + raw[at:]


def cut(rng: random.Random, raw: bytes) -> bytes:
    first, last = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    return raw[:first] + raw[last:] if rng.random() < 0.5 else raw[:last]


def drop_a_line(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def repeat_a_line(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return b"\n".join(lines)


def swap_two_lines(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def indent_a_line(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = rng.choice([b" " + lines[at], b"  " + lines[at], b"\t" + lines[at], lines[at].lstrip(), lines[at][1:]])
    return b"\n".join(lines)


def replace_a_word(rng: random.Random, raw: bytes) -> bytes:
    words = list(re.finditer(rb"[A-Za-z0-9_.]+|^", raw))
    word = rng.choice(words)
    new = rng.choice(words)[0] if rng.random() < 0.4 else rng.choice(NASTY).encode()
    return raw[: word.start()] + new + raw[word.end() :]


def replace_a_value(rng: random.Random, raw: bytes) -> bytes:
    values = list(re.finditer(rb"(?<=: )[^,{}\[\]\n]+|^", raw))
    value = rng.choice(values)
    new = rng.choice(values)[0] if rng.random() < 0.4 else rng.choice(NASTY).encode()
    return raw[: value.start()] + new + raw[value.end() :]


MUTATE: tuple[Mutation, ...] = (
    flip_a_byte,
    put_a_byte,
    cut,
    drop_a_line,
    repeat_a_line,
    swap_two_lines,
    indent_a_line,
    replace_a_word,
    replace_a_word,
    replace_a_value,
    replace_a_value,
    replace_a_value,
)
HEAD = re.compile(r"^(?P<name>[a-z0-9_]+\.yaml):(?P<line>\d+):(?P<column>\d+): .+\S$")


def sources() -> list[tuple[str, bytes, Callable[[Path], object]]]:
    folder = shipped_folder()
    specs = [(f"{name}.yaml", (folder / f"{name}.yaml").read_bytes(), load_spec) for name in SPECS]
    platforms = [(path.name, path.read_bytes(), read_platform) for path in shipped_platforms()]
    schemes = ("schemes.yaml", (folder / "schemes.yaml").read_bytes(), load_schemes)
    return [*specs, *specs, schemes, *platforms]  # type: ignore[list-item]


def well_formed(message: str, name: str, raw: bytes) -> bool:
    """Return whether every block of *message* has a place in the file, a source line and a caret at most."""
    lines = message.split("\n")
    count = len(re.split("\r\n|[\n\r\x85\u2028\u2029]", raw.decode("utf-8-sig", "replace")))
    for line in lines:
        if line.startswith("  | "):
            continue
        if re.fullmatch(rf"{name}: \d+ lines; at most \d+ are read\.", line):
            continue
        if line == lines[-1] and re.fullmatch(r"and [\d,]+ more errors\. .+", line):
            continue
        found = HEAD.match(line)
        if found is None or found["name"] != name or not 1 <= int(found["line"]) <= count or len(line) > 2000:
            return False
    return bool(lines)


def refusal(load: Callable[[Path], object], path: Path) -> str | None:
    """Return the message with which *path* is refused; anything but a QuantizerError is a failure of the test."""
    try:
        loaded = load(path)
        if isinstance(loaded, Spec):
            draw_order(loaded)
    except QuantizerError as err:
        return str(err)
    except Exception as err:
        raise AssertionError(f"{path.name}: {err!r}\n{path.read_bytes()!r}") from err
    return None


def test_damaged_files_are_read_or_refused_with_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(20240607)
    read = refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for index in range(MUTATIONS):
            name, raw, load = rng.choice(FILES)
            damaged = raw
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                damaged = rng.choice(MUTATE)(rng, damaged) if damaged else damaged
            path = tmp_path / name
            path.write_bytes(damaged)
            message = refusal(load, path)
            if message is None:
                read += 1
            else:
                refused += 1
                assert well_formed(message, name, damaged), (index, message)
                assert "Input should" not in message
    assert refused > MUTATIONS // 3
    assert read > MUTATIONS // 50


FILES = sources()
