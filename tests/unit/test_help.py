"""Every command and every verb prints its help."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantizer.cli import COMMANDS, _describe
from quantizer.runtime.engines import catalogue
from quantizer.runtime.models.engines import FLOAT, QDQ, REFERENCE

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"(?:^(?:\$ )? *|`)((?:quantizer|pytest) [^`\n]*)", re.MULTILINE)
ENGINE = re.compile(r"(?:--op-engine[= ]|--engine[= ]|engine probe )'?([a-z][a-z_0-9:]*)")
EXAMPLES = {"my_sim", "tiny_chip"}
"""Engines that pages make."""
OPTIMIZED = ":optimized"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from parsers(verb)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_is_printed(command):
    top = argparse.ArgumentParser(prog="quantizer")
    importlib.import_module(COMMANDS[command][0]).add_parser(top.add_subparsers())
    _describe(top)
    for parser in parsers(top):
        assert parser.prog in parser.format_help()
        assert "%%" not in parser.format_help()
        assert not re.search(r"positional arguments:\n  VERB", parser.format_help()), "title='verbs' is missing"
        assert max(map(len, parser.format_help().splitlines())) <= 125, f"{parser.prog}: a line is not wrapped"


def test_engine_names_in_help_and_pages_exist():
    """An example that names an engine can be typed as it is."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("quantizer/commands/*.py")]
    known = {FLOAT, QDQ, REFERENCE, *EXAMPLES}
    named = {
        (page.relative_to(ROOT).as_posix(), name)
        for page in pages
        if page.name != "CHANGELOG.md"
        for command in COMMAND.findall(page.read_text())
        for name in ENGINE.findall(command)
    }
    assert named
    unknown = [one for one in named if not (catalogue.is_known(one[1].removesuffix(OPTIMIZED)) or one[1] in known)]
    assert [one for one in unknown if not one[1].startswith("python")] == []
