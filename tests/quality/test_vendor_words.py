"""Shared floors name no vendor's system: vendor-specific code is in the rooms."""

import re
from pathlib import Path

import pytest

from quantizer.core.rooms import engines, rooms

PACKAGE = Path(__file__).parents[2] / "quantizer"
FLOORS = ("core", "numerics", "ops", "tiling", "conformance", "runtime")
NO_SYSTEM = {
    "ideal": "exact arithmetic",
    "float32": "a number format",
    "float32_any_order": "a number format",
    "torch": "the library that the floors compute with",
    "onnx_reference": "the evaluator of the standard",
}
"""Names of rooms, platforms and engines that are not a vendor's, each with its meaning."""
FURTHER = (
    "aipu", "zhouyi", "tensorflow", "pytorch", "executorch", "qnnpack", "fbgemm", "onednn", "dnnl", "onnx runtime", "mlas",
    "sophgo", "tpu_", "gemmlowp", "ruy", "cmsis", "ethos", "vela", "qualcomm", "nvidia", "tensorrt",
)  # fmt: skip
"""Words besides the names of rooms: makers, libraries inside engines, other names of the same systems."""
ALLOWED = (
    (
        "conformance/run/machine_facts.py",
        "onednn",
        "key of machine.json: a library inside torch, which computes our own float kernels",
    ),
    ("", "pytorch_half_pixel", "a value of ONNX Resize, as the standard spells it"),
    (
        "runtime/onnx/",
        "onnx runtime",
        "where the ONNX standard leaves a result open, a docstring says whose result it is",
    ),
)
"""Where a word may stand (the beginning of a path below the package), the word, and why."""


def words() -> list[str]:
    """Return all names of rooms, platforms, engines and variants that belong to a vendor, and the further words."""
    named = {room.name for room in rooms()} | {name for room in rooms() for name in room.platforms} | set(engines())
    return sorted((named - NO_SYSTEM.keys()) | set(FURTHER))


def pattern(word: str) -> str:
    """Return the pattern that finds *word*; a short word must stand alone, because other words contain it."""
    return rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])" if len(word) <= 5 else re.escape(word)


SEARCHED = re.compile("|".join(map(pattern, words())), re.IGNORECASE)


def found(text: str, path: str) -> list[str]:
    """Return the words in *text* that the file at *path* must not contain."""
    for place, word, _ in ALLOWED:
        if path.startswith(place):
            text = re.sub(re.escape(word), "", text, flags=re.IGNORECASE)
    return [match.group() for match in SEARCHED.finditer(text)]


@pytest.mark.parametrize("floor", FLOORS)
def test_no_floor_names_a_system(floor):
    files = [path for path in sorted((PACKAGE / floor).rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    named = {}
    for path in files:
        below = path.relative_to(PACKAGE).as_posix()
        for number, line in enumerate([below, *path.read_text(encoding="utf-8").splitlines()]):
            if words := found(line, below):
                named[f"{below}:{number}"] = words
    assert not named, "Move what one system alone needs into its room (docs/platforms.md)."


@pytest.mark.parametrize(
    "line", ['DEFAULT = "ort"', "# as LiteRT does", "from x import compass", "tflite_ref", "TOSA's"]
)
def test_vendor_names_are_found(line):
    assert found(line, "core/spec.py")


@pytest.mark.parametrize("line", ["import torch", "export", "the order of rows", "float32"])
def test_ordinary_words_are_not_taken_for_vendor_names(line):
    assert not found(line, "core/spec.py")


@pytest.mark.parametrize(("place", "word", "reason"), ALLOWED, ids=[word for _, word, _ in ALLOWED])
def test_allowed_vendor_words_still_occur(place, word, reason):
    texts = (
        path.read_text(encoding="utf-8")
        for floor in FLOORS
        for path in (PACKAGE / floor).rglob("*.py")
        if path.relative_to(PACKAGE).as_posix().startswith(place)
    )
    assert any(word in text.casefold() for text in texts), f"{word}: remove the entry ({reason})"
