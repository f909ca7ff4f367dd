"""Writes the reference of the command line and of pytest's options as markdown, from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from quantizer.conformance.run import plugin

_INTRO = """\
# Options

Written by `quantizer docs` from the parsers.

## pytest

pytest runs the specs; these options choose what runs and how it is judged. Each option except `--op-golden-update` and
`--op-in-process` is also an ini key of the same name with underscores (`op_specs = my_specs`). A list has one entry per
line. The command line overrides the ini file. Paths on the command line are relative to the folder where pytest is
started. Paths in the ini file are relative to its folder.

| option | meaning |
|---|---|"""
_EXIT = """\
Exit codes are pytest's: 0 all passed, 1 an item failed or the run fell behind the baseline, 2 interrupted, 4 wrong
usage (an unknown name, a missing file, a plugin that cannot be imported), 5 nothing was selected.

## quantizer

Exit codes: 0 done, 1 the answer is no (a survivor, a regression, a stale file), 2 wrong input with one line that says
where, 130 interrupted.
"""


def options_document(commands: Mapping[str, tuple[str, str]]) -> str:
    """Return the page of every option of pytest's plugin and of every verb of *commands* (name -> module, help)."""
    lines = [_INTRO, *_pytest_rows(), "", _EXIT]
    for module, text in commands.values():
        top = argparse.ArgumentParser(prog="quantizer")
        importlib.import_module(module).add_parser(top.add_subparsers())
        for parser, words in _leaves(top, ""):
            lines += _command(parser, words or text)
    return "\n".join(lines).rstrip() + "\n"


class _Options:
    """A parser for pytest_addoption that keeps argparse's options, since pytest's own objects differ by release."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser(add_help=False)

    def getgroup(self, *_: str) -> _Options:
        """Return this object, which is its only group."""
        return self

    def addoption(self, *names: str, **attributes: Any) -> None:
        """Keep an option."""
        self.parser.add_argument(*names, **attributes)

    def addini(self, *_: object, **__: object) -> None:
        """Ignore an ini key, which has the name of an option."""


def _pytest_rows() -> Iterator[str]:
    asked = _Options()
    plugin.pytest_addoption(cast("pytest.Parser", asked))
    for action in asked.parser._actions:
        yield _row(_name(action).replace(" ", "=", 1), (action.help or "") % vars(action))


def _leaves(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the parsers without verbs, each with its help line."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield parser, words
    for action in nested:
        # argparse formats a help line with %, so that a percent sign is written twice
        told = {choice.dest: (choice.help or "") % {} for choice in action._choices_actions}
        for name, verb in action.choices.items():
            yield from _leaves(verb, told.get(name, ""))


def _command(parser: argparse.ArgumentParser, words: str) -> list[str]:
    lines = [f"### {parser.prog}", "", f"{words[:1].upper()}{words[1:].rstrip('.')}.", ""]
    rows = [_row(_name(action), _meaning(action)) for action in parser._actions if action.dest != "help"]
    return [*lines, *(["| argument | meaning |", "|---|---|", *rows, ""] if rows else [])]


def _name(action: argparse.Action) -> str:
    shown = action.metavar or action.dest.upper()
    value = " ".join(shown) if isinstance(shown, tuple) else str(shown)
    if not action.option_strings:
        return value
    takes = f" {value}" if action.nargs != 0 else ""
    return f"{', '.join(action.option_strings)}{takes}"


def _meaning(action: argparse.Action) -> str:
    named = {key: value for key, value in vars(action).items() if key != "help"}
    # as argparse formats it: %(default)s and the like
    text = (action.help or "") % {**named, "prog": "quantizer"}
    text = text.replace(" (repeatable)", "")
    words = f" ({', '.join(map(str, action.choices))})" if action.choices else ""
    told = not isinstance(action, argparse._AppendAction) or "(repeatable" in text
    repeated = "" if told else " (repeatable)"
    return text + words + repeated


def _row(name: str, meaning: str) -> str:
    escaped = " ".join(meaning.split()).replace("|", "\\|").replace("<", "&lt;")
    return f"| `{name}` | {escaped} |"
