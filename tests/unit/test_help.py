"""Every command and every verb prints its help."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

import pytest

from quantizer.cli import COMMANDS, _describe


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
        assert max(map(len, parser.format_help().splitlines())) <= 125, f"{parser.prog}: a line is not wrapped"
