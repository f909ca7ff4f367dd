"""docs/defects.md says what the platforms declare."""

from __future__ import annotations

from pathlib import Path

from quantizer.conformance.defects.document import defects_document
from quantizer.core.library import load_library

ROOT = Path(__file__).parents[2]


def test_the_document_is_what_its_command_writes():
    written = (ROOT / "docs/defects.md").read_text(encoding="utf-8")
    assert written == defects_document(load_library()), (
        "docs/defects.md is stale: run quantizer engine defects -o docs/defects.md"
    )
