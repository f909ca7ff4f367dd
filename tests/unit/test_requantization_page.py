"""The reference page describes every requantization."""

from pathlib import Path
from typing import get_args

from quantizer.conformance.probe.words import MEANINGS
from quantizer.core.variants import Variant

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "platforms.md"


def test_every_requantization_has_a_meaning_and_a_row():
    page = PAGE.read_text(encoding="utf-8")
    assert set(MEANINGS) == set(get_args(Variant))
    assert all(f"| `{name}` | {known.rescale} |" in page for name, known in MEANINGS.items())
