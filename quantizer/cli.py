"""The `quantizer` command: runs the module of a subcommand and turns errors into exit codes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Protocol, TextIO, cast

from quantizer import __version__
from quantizer.commands.parser import Parser
from quantizer.core.errors import QuantizerError
from quantizer.core.streams import Shown
from quantizer.core.wording import suggestion

USAGE = 2
INTERRUPTED = 130  # as shells report SIGINT: 128 + 2
BROKEN_PIPE = 141  # as shells report SIGPIPE: 128 + 13


class CommandModule(Protocol):
    """The interface of a command's module."""

    add_parser: Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], object]
    """Add the command and its arguments."""
    run: Callable[[argparse.Namespace], int]
    """Run the command of the arguments; return the exit code."""


COMMANDS: Mapping[str, tuple[str, str]] = {
    "spec": ("quantizer.commands.spec", "write, check and list operator specs"),
    "optimize": ("quantizer.commands.optimize", "quantize a float IR as a cfg file says"),
    "case": ("quantizer.commands.case", "replay, keep or export a stored case"),
    "campaign": ("quantizer.commands.campaign", "run generated cases for hours"),
    "docs": ("quantizer.commands.docs", "write the reference pages of keys and options"),
    "engine": ("quantizer.commands.engine", "list and measure real engines"),
    "faults": ("quantizer.commands.faults", "measure which seeded faults the checks find"),
    "compare": ("quantizer.commands.compare", "compare two archives of arrays (.npz)"),
    "mlir": ("quantizer.commands.mlir", "verify modules of Top MLIR"),
    "onnx": ("quantizer.commands.onnx", "run ONNX's own tests, show a model"),
    "analyse": ("quantizer.commands.analyse", "quantize an ONNX model and measure what each operation costs"),
    "model": ("quantizer.commands.model", "compare engines on a whole ONNX model, operator by operator"),
    "vectors": ("quantizer.commands.vectors", "write test vectors as files, judge results from files"),
    "fusion": ("quantizer.commands.fusion", "judge graphs of a few nodes that engines fuse"),
    "report": ("quantizer.reporting.commands", "read, compare and gate the records of runs"),
}
"""Command -> its module and one line of help; only the module of the command that runs is imported."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for a user's error, 130 when interrupted."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    out, err = (cast("TextIO", Shown(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        return _code(arguments)


def _code(arguments: Sequence[str]) -> int:
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except QuantizerError as err:
        sys.stderr.write(f"error: {err}\n")
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _run(arguments: Sequence[str]) -> int:
    asked = next((word for word in arguments if not word.startswith("-")), None)
    if asked is not None and asked not in COMMANDS:
        sys.stderr.write(f"error: {asked!r}: no such command.{suggestion(asked, COMMANDS, 'Commands')}\n")
        return USAGE
    module = cast("CommandModule", importlib.import_module(COMMANDS[asked][0])) if asked else None
    parser = Parser(prog="quantizer", description="Conformance gate for quantized operators.")
    parser.set_defaults(commands=COMMANDS)
    parser.add_argument("--version", action="version", version=f"quantizer {__version__}")
    subparsers: argparse._SubParsersAction[Any] = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, (_, help_line) in COMMANDS.items():
        if name == asked and module is not None:
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=help_line)
    _describe(parser)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    if module is None:
        raise AssertionError("argparse accepted a line without a command; please report this.")
    return module.run(parsed)


def _describe(parser: argparse.ArgumentParser) -> None:
    """Start the help of each verb with the line that the help of its command shows for it."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        lines = {choice.dest: choice.help for choice in action._choices_actions}
        for name, verb in action.choices.items():
            if verb.description is None and (line := lines.get(name)):
                verb.description = f"{line[0].upper()}{line[1:]}.".replace(
                    "%%", "%"
                )  # argparse formats help lines with %, but not this text
            _describe(verb)


def _silence(descriptor: int) -> None:
    """Point *descriptor* at nothing, so that the interpreter's last flush finds no broken pipe either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
