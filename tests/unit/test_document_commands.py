"""Command lines in the documents are accepted by the parser; other tests check their output."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from quantizer.cli import COMMANDS
from quantizer.commands.parser import Parser

ROOT = Path(__file__).parents[2]
PAGES = [
    page.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for page in sorted(ROOT.glob(pattern))
    if page.name != "CHANGELOG.md"  # it names commands that are gone
]
LINE = re.compile(r"^(?:    |\$ )?quantizer ([a-z].*)$", re.MULTILINE)
AFTER = re.compile(r" (?:\||>>?|&&|\|\|) .*")
"""What a shell does with the output, or runs afterwards."""


def lines(page: str) -> list[list[str]]:
    """Return the words of every command line of a page, without `quantizer`."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    found = [shlex.split(AFTER.sub("", line), comments=True) for line in LINE.findall(text) if line.count("'") % 2 == 0]
    return [words for words in found if words and words[0] in COMMANDS]


@pytest.fixture(scope="module")
def parser() -> Parser:
    made = Parser(prog="quantizer")
    commands = made.add_subparsers(metavar="COMMAND")
    for module, *_ in COMMANDS.values():
        importlib.import_module(module).add_parser(commands)
    return made


@pytest.mark.parametrize("page", [page for page in PAGES if lines(page)])
def test_every_command_line_on_a_page_is_parsed(page: str, parser: Parser) -> None:
    for words in lines(page):
        try:
            parser.parse_args(words)
        except SystemExit as end:
            pytest.fail(f"{page}: quantizer {shlex.join(words)}: ends with {end.code}")


def test_command_lines_are_found_on_many_pages() -> None:
    assert sum(len(lines(page)) for page in PAGES) > 50
