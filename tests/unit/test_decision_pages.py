"""Decision pages have one number each and one head: status, date, decision, alternatives, consequences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "adr").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_decision_page_has_a_complete_head(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    number = int(page.name[:4])
    assert text.startswith(f"# {number}. ")
    head = text.split("\n## ")[0]
    assert re.search(r"^- Status: (accepted|superseded)", head, re.MULTILINE)
    assert re.search(r"^- Date: 20\d\d-\d\d-\d\d$", head, re.MULTILINE)
    assert re.search(r"^- Decision: \S", head, re.MULTILINE)
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections[0] == "Context"
    assert sections[-2:] == ["Alternatives", "Consequences"]


def test_decision_numbers_are_unique() -> None:
    numbers = [page.name[:4] for page in PAGES]
    assert len(numbers) == len(set(numbers))
