"""docs/defects.md is up to date."""

from __future__ import annotations

from pathlib import Path

from quantizer.conformance.defects.document import defects_document
from quantizer.core.library import load_library

ROOT = Path(__file__).parents[2]


def test_the_defects_document_is_up_to_date():
    written = (ROOT / "docs/defects.md").read_text(encoding="utf-8")
    assert written == defects_document(load_library()), (
        "docs/defects.md is stale: run quantizer engine defects -o docs/defects.md"
    )


def test_a_gallery_row_names_every_operator_of_its_cause():
    """The text comes from the entry that states the cause, and may mention only one operator."""
    found = (ROOT / "docs/gallery.md").read_text(encoding="utf-8").splitlines()
    (row,) = [
        line
        for line in found
        if "MultiplyByQuantizedMultiplier computes x * (1 << left_shift)" in line.replace("\\", "")
    ]
    assert "MUL's multiplier" in row
    assert "The same cause shows in conv1d, conv2d, conv_transpose2d, depthwise_conv2d, fully_connected," in row
