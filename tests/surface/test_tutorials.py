"""Files and console blocks of the tutorials: the commands print the output that the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from followed import follow, run
from warmed import Warmed

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.mark.parametrize(("page", "least"), [("operator_author", 8), ("model_engineer", 5)])
def test_tutorial_commands_print_what_the_page_shows(tmp_path: Path, warmed: Warmed, page: str, least: int) -> None:
    if page == "model_engineer":
        pytest.importorskip("onnx")
        for path in (ROOT / "examples" / "model_test").iterdir():
            if path.is_file():
                (tmp_path / path.name).write_bytes(path.read_bytes())
    assert follow(TUTORIALS / f"{page}.md", tmp_path, warmed) >= least


def test_the_page_on_debugging_finds_the_cause(tmp_path: Path, warmed: Warmed) -> None:
    assert follow(ROOT / "docs" / "debugging.md", tmp_path, warmed) >= 4


def test_network_commands_of_the_tutorial_find_items_anywhere(tmp_path: Path, warmed: Warmed) -> None:
    pytest.importorskip("onnxruntime")
    page = (TUTORIALS / "model_engineer.md").read_text(encoding="utf-8")
    judging = re.findall(r"^\$ (pytest .*)$", page, re.MULTILINE)
    found = [run(f"{command} --collect-only -q", tmp_path, warmed) for command in judging]
    assert [re.search(r"(\d+)/\d+ tests collected", said)[1] for said in found] == ["2", "1"], found  # type: ignore[index]


@pytest.mark.nightly  # plants every fault
def test_the_operator_tutorial_shows_the_faults_table(tmp_path: Path, warmed: Warmed) -> None:
    page = TUTORIALS / "operator_author.md"
    follow(page, tmp_path, warmed)
    command, said = re.findall(
        r"^\$ (quantizer faults .*)\n((?:.+\n)+?)```", page.read_text(encoding="utf-8"), re.MULTILINE
    )[0]

    def cells(text: str) -> list[str]:
        return [re.sub(r" \(\d+\)|-{2,}| {2,}", " ", line).strip() for line in text.splitlines()]

    printed = cells(run(command, tmp_path, warmed))
    assert [line for line in cells(said) if line != "..." and line not in printed] == []
