"""Damaged Top MLIR is refused with a FormatError that names a place, or is a graph that is written and read back unchanged."""

from __future__ import annotations

import io
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quantizer.core.errors import FormatError, QuantizerError
from quantizer.ir.formats.mlir_text import Cursor, quoted
from quantizer.ir.formats.npz import npz_bytes, read_npz
from quantizer.ir.formats.top_mlir import from_bytes, to_bytes
from quantizer.ir.graph import same

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from top_graphs import convolution, graph_of

WORDS = (
    "none", "tensor<1xf32>", "tensor<*xf32>", "!quant.uniform<i8:f32, 0.5>", "-500", "0", "nan", "inf", "0x7FF8000000000000",
    "[]", "[", "]", "{", "}", "<", ">", '"', '"x"', "\\FF", "%0", "%arg0", "%4#1", "loc(unknown)", "loc", "#loc", ": i64",
    ": si32", ": f64", "true", "99999999999999999999", "1e999", "top.Conv", '"top.None"', "return", "->", ",", "//", "\n",
    "\x00", "?x", "0x8xf32", "i4", "si8", "é", "<{a = 1}>",
)  # fmt: skip
MUTATIONS = 4000


def _delete(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.choice((1, 1, 2, 9)) :]


def _insert(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(WORDS) + text[at:]


def _replace(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(WORDS) + text[at + rng.randrange(1, 6) :]


def _character(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + chr(ord(text[at]) ^ (1 << rng.randrange(7))) + text[at + 1 :]


def _lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    if rng.random() < 0.3:
        del lines[i]
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


def _digit(rng: random.Random, text: str) -> str:
    places = [i for i, character in enumerate(text) if character.isdigit()]
    at = rng.choice(places) if places else 0
    return text[:at] + rng.choice("0123456789") + text[at + 1 :]


def _truncate(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text))]


CHANGES = (_delete, _insert, _replace, _character, _lines, _digit, _digit, _digit, _truncate)


def test_damaged_texts_are_refused_or_sound():
    """Of 4,000 damaged texts each raises a FormatError with a place, or yields a graph that survives writing and reading."""
    rng = random.Random(20261122)
    graphs = [convolution(), convolution(quantized=True, bias=False)]
    graphs += [
        graph_of(op, seed) for op in ("top.Custom", "top.Sort", "top.Slice", "top.RequantFp") for seed in range(4)
    ]
    originals = [to_bytes(graph, "net", "TOP_QUANTIZED") for graph in graphs]
    outcomes: Counter[str] = Counter()
    for number in range(MUTATIONS):
        text, archive = originals[number % len(originals)]
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            text = rng.choice(CHANGES)(rng, text or " ")
        with np.load(io.BytesIO(archive)) as arrays:
            weights = dict(arrays)
        try:
            graph = from_bytes(text, weights, "net.mlir")
        except FormatError as err:
            assert str(err).startswith("net.mlir:"), err
            assert "\n" not in str(err)
            outcomes["refused"] += 1
            continue
        try:
            again, packed = to_bytes(graph, graph.name or "net", "TOP_QUANTIZED")
        except QuantizerError:
            outcomes["not written"] += 1
            continue
        with np.load(io.BytesIO(packed)) as arrays:
            found = from_bytes(again, dict(arrays))
        assert same(graph.with_(name=found.name), found) is None, text
        outcomes["sound"] += 1
    assert outcomes["refused"] > MUTATIONS // 2, outcomes
    assert outcomes["sound"] > MUTATIONS // 10, outcomes
    assert outcomes["not written"] < MUTATIONS // 50, outcomes


def test_damaged_archives_are_refused_or_arrays(tmp_path: Path):
    rng = random.Random(3)
    sound = npz_bytes({"w": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "b": np.ones(3, np.int8)})
    path = tmp_path / "w.npz"
    outcomes: Counter[str] = Counter()
    for _ in range(1500):
        data = bytearray(sound[: rng.randrange(len(sound))] if rng.random() < 0.1 else sound)
        for _ in range(rng.choice((1, 1, 2, 8))):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            arrays = read_npz(path)
        except FormatError as err:
            assert str(err).startswith(str(path))
            outcomes["refused"] += 1
            continue
        assert all(values.dtype.kind in "biuf" for values in arrays.values())
        outcomes["read"] += 1
    assert outcomes["refused"] > 300, outcomes


@given(st.text(max_size=60))
def test_any_text_is_refused_as_a_module(text: str):
    try:
        from_bytes(text, {})
    except FormatError as err:
        assert str(err).startswith("module:")
    else:
        raise AssertionError(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_every_quoted_text_is_read_back(text: str):
    cursor = Cursor("s", quoted(text))
    assert cursor.label(cursor.next()) == text
    assert cursor.token.kind == "end"
