"""One engine of mutations for every reader: bytes, lines, JSON values, headers of arrays, archives, databases."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

Mutation = Callable[[random.Random, bytes], bytes]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**53, 2**63, -(2**63) - 1, 10**30, 10**5000, 0.5, 1e308, float("inf"), float("-inf"), float("nan"),
    "", "x", "\x00", "\x1b[2J", "\ud800", "\u202e", "\x85", "e\u0301", "x" * 5000, "</script>", "../../../etc/passwd", "inf", "1",
    [], {}, [[]], [None], {"": None}, ["x"] * 100, {"x": {"y": []}},
)  # fmt: skip
WORDS = (
    b"null", b"true", b"-1", b"1e999", b"9" * 30, b"[" * 3000, b"{", b"}", b"]", b'"', b"\\ud800", b"\x00", b"\xff", b"\x1b", b":", b",",
    b"inf", b"nan", b"\n", b"\r", b"=", b"[quantizer]", b"'", b"%(x)s", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"0x", b"1_0", b"#", b"-", b"*a",
)  # fmt: skip
HEADERS = (
    "(True, 4)", "(-1,)", "(2.5,)", "('a',)", "(1 << 62,)", "(4611686018427387904, 4)", "()", "4", "None", "((1,),)", "(0, 9223372036854775807)",
    "(1,) * 64", "(1,) * 40000", "(" * 300, "[4]", "{}", "(4, 3, 2)",
)  # fmt: skip


def flip(rng: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw or b"\x00")
    for _ in range(rng.choice((1, 1, 1, 3, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, raw: bytes) -> bytes:
    first, last = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    return raw[:first] + raw[last:] if rng.random() < 0.5 else raw[:last]


def splice(rng: random.Random, raw: bytes) -> bytes:
    at, first, last = rng.randrange(len(raw) + 1), *sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    return raw[:at] + raw[first : min(last, first + 4096)] + raw[at:]


def word(rng: random.Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(WORDS) + raw[at + rng.randrange(4) :]


def digits(rng: random.Random, raw: bytes) -> bytes:
    """Replace a number."""
    starts = [i for i in range(len(raw)) if raw[i : i + 1].isdigit() and not raw[i - 1 : i].isdigit()]
    if not starts:
        return word(rng, raw)
    at = end = rng.choice(starts)
    while raw[end : end + 1].isdigit():
        end += 1
    return raw[:at] + rng.choice((b"-1", b"0", b"9" * 20, b"1e999", b"0.5", b"x", b"9" * 5000, b'"1"')) + raw[end:]


def lines(rng: random.Random, raw: bytes) -> bytes:
    found = raw.split(b"\n")
    first, second = rng.randrange(len(found)), rng.randrange(len(found))
    match rng.randrange(3):
        case 0:
            del found[first]
        case 1:
            found.insert(second, found[first])
        case _:
            found[first], found[second] = found[second], found[first]
    return b"\n".join(found)


BYTES: tuple[Mutation, ...] = (flip, cut, splice, word, digits, lines)


def json_line(rng: random.Random, raw: bytes) -> bytes:
    """Change one value, key or list of one JSON document, or of one line of them."""
    whole = not raw.startswith(b'{"') or b"}\n{" not in raw
    parts = [raw] if whole else raw.split(b"\n")
    place = rng.randrange(len(parts))
    try:
        content = json.loads(parts[place])
    except (ValueError, RecursionError):
        return word(rng, raw)
    parts[place] = _dumped(_changed(rng, content))
    return b"\n".join(parts)


def message(rng: random.Random, raw: bytes) -> bytes:
    """Change one value, key or list in a framed message and correct its length."""
    length = int.from_bytes(raw[:4], "little")
    text, rest = raw[4 : 4 + length], raw[4 + length :]
    changed = json_line(rng, text)
    return len(changed).to_bytes(4, "little") + changed + rest


def _dumped(content: Any) -> bytes:
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    except ValueError:  # more digits than Python writes
        return b'{"x":' + b"9" * 5000 + b"}"


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([*value])
        match rng.randrange(10):
            case 0:
                return {name: item for name, item in value.items() if name != key}
            case 1:
                return value | {rng.choice(("x", "", "\x1b", "version", "\ud800")): rng.choice(VALUES)}
            case 2:
                return {(f"{name}x" if name == key else name): item for name, item in value.items()}
            case _:
                return value | {key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return rng.choice(VALUES)


def npy_header(rng: random.Random, raw: bytes) -> bytes:
    """Give an .npy file another header."""
    dtype = rng.choice(
        (
            "'<f4'",
            "'<i8'",
            "'|O'",
            "'<U3'",
            "'<c8'",
            "'V0'",
            "[('a', '<f4')]",
            "'<f4" + "4" * 30 + "'",
            "None",
            "'>f8'",
            "3",
        )
    )
    text = f"{{'descr': {dtype}, 'fortran_order': {rng.choice(('False', 'True', '1', 'None'))}, 'shape': {rng.choice(HEADERS)}, }}"
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
    length = len(text).to_bytes(2 if version[:1] == b"\x01" else 4, "little")
    return b"\x93NUMPY" + version + length + text.encode() + raw[128:]


def archive(rng: random.Random, raw: bytes) -> bytes:
    """Pack an archive of arrays anew: one entry damaged, packed, named twice, or much larger than it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        if not names:  # an earlier mutation damaged the count of entries
            return flip(rng, raw)
        changed = rng.choice(names)
        for name in names:
            content = old.read(name)
            kind, written = zipfile.ZIP_STORED, name
            if name == changed:
                match rng.randrange(6):
                    case 0:
                        content = npy_header(rng, content)
                    case 1:
                        content = rng.choice(BYTES)(rng, content)
                    case 2:
                        content, kind = content + bytes(1 << 20), zipfile.ZIP_DEFLATED
                    case 3:
                        written = rng.choice(("x.txt", "../x.npy", "x", "\x1b.npy", "x.npy"))
                    case 4:
                        kind = zipfile.ZIP_BZIP2
                    case _:
                        continue
            new.writestr(zipfile.ZipInfo(written), content, kind)
    found = out.getvalue()
    return flip(rng, found) if rng.random() < 0.2 else found


SQL = (
    "UPDATE figures SET {column} = 'text'",
    "UPDATE figures SET {column} = x'ff00'",
    "UPDATE figures SET {column} = 1e999",
    "UPDATE figures SET {column} = 0.5",
    "UPDATE runs SET name = x'c328'",
    "UPDATE runs SET name = CAST(x'ff' AS TEXT)",
    "UPDATE OR IGNORE figures SET op = CAST(x'c3' AS TEXT)",
    "UPDATE OR IGNORE figures SET op = x'00'",
    "DROP TABLE figures",
    "DROP TABLE runs",
    "DELETE FROM runs",
    "PRAGMA user_version = 9",
    "PRAGMA application_id = 9",
    "CREATE TABLE other (x)",
    "ALTER TABLE figures RENAME TO f",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
    "UPDATE runs SET name = char(27)",
    "UPDATE runs SET position = 1 << 40",
    "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "ALTER TABLE figures ADD COLUMN y AS (zeroblob(1000000000))",
    "UPDATE figures SET {column} = 9223372036854775807",
)
COLUMNS = ("ratio", "sqnr_db", "seconds", "cases", "failed", "gaps", "killed", "planted")


def database(folder: Path) -> Mutation:
    """Return a mutation that changes a SQLite file by its own language, in *folder*."""

    def change(rng: random.Random, raw: bytes) -> bytes:
        file = folder / "mutated.sqlite"
        file.write_bytes(raw)
        try:
            with closing(sqlite3.connect(file)) as opened, opened:
                opened.execute(rng.choice(SQL).format(column=rng.choice(COLUMNS)))
        except sqlite3.Error:
            return flip(rng, raw)
        return file.read_bytes()

    return change


def arrays(**named: Any) -> bytes:
    """Return the archive of some arrays, to be mutated."""
    stream = io.BytesIO()
    np.savez(stream, **named)
    return stream.getvalue()
