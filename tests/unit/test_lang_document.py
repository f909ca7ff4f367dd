"""docs/tpulang.md lists the functions as they are."""

from __future__ import annotations

from pathlib import Path

from quantizer.lang import FUNCTIONS
from quantizer.lang.document import GROUPS, functions_document

ROOT = Path(__file__).parents[2]


def test_the_tpulang_document_is_up_to_date() -> None:
    written = (ROOT / "docs/tpulang.md").read_text(encoding="utf-8")
    assert written == functions_document(), "docs/tpulang.md is stale: write functions_document() into it"


def test_all_120_functions_exist() -> None:
    own = [item for item in FUNCTIONS.values() if item.group != GROUPS[-1]]
    assert len(own) == 120
    assert {item.group for item in FUNCTIONS.values()} == set(GROUPS)
