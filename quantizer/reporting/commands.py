"""`quantizer report`: one run with its coverage; two runs side by side, and whether the second may pass."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from quantizer.core.errors import QuantizerError

FAILED = 1
BAD_INPUT = 2

_WORDS = ("new-failure", "regression", "coverage")
_FORMATS = ("terminal", "markdown", "json")

_MOST_REASONS = 50
"""Reasons to fail that are written out."""

_EPILOG = """\
reasons to fail (--fail-on):
  new-failure  an item fails that did not fail in BASE
  regression   a worst ratio grew beyond 1, or, of accuracy and float, by more than the factor
  coverage     an item is missing, or has fewer cases, more holes or less coverage than in BASE

exit status: 0 nothing to fail on, 1 there is a reason to fail, 2 the input cannot be read

examples:
  quantizer report diff reports/baselines/gate.jsonl reports/out
  quantizer report diff BASE RUN --format markdown >> "$GITHUB_STEP_SUMMARY"
  quantizer report diff BASE RUN --fail-on new-failure,regression,coverage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `report` and its verbs to the command line."""
    report = subparsers.add_parser("report", help="read, compare and gate the records of runs")
    verbs = report.add_subparsers(dest="report_verb", metavar="VERB", required=True)
    diff = verbs.add_parser(
        "diff",
        help="compare a run with a baseline",
        description="Compare two runs: failures, errors, coverage.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    diff.add_argument("base", metavar="BASE", type=Path, help="a records file, or the directory of a run")
    diff.add_argument("candidate", metavar="RUN", type=Path, help="the run to judge, in the same form")
    diff.add_argument("--format", choices=_FORMATS, default="terminal", help="how to write it (default: terminal)")
    diff.add_argument(
        "--fail-on", metavar="A,B", type=_reasons, default=frozenset(), help="exit 1 for these reasons (default: none)"
    )
    diff.add_argument(
        "--factor",
        metavar="F",
        type=_factor,
        default=1.25,
        help="growth of a ratio that is a regression (default: 1.25)",
    )
    diff.add_argument(
        "--filtered", action="store_true", help="RUN was a selection (-k, --op-...): what it leaves out is no loss"
    )
    show = verbs.add_parser(
        "show", help="show one run", description="Show one run: failures, the worst items, coverage, holes."
    )
    show.add_argument("candidate", metavar="RUN", type=Path, help="a records file, or the directory of a run")
    show.add_argument("--format", choices=_FORMATS[:2], default="terminal", help="how to write it (default: terminal)")


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments ask; return the exit status."""
    from quantizer.core.errors import QuantizerError

    try:
        return _show(args) if args.report_verb == "show" else _diff(args)
    except QuantizerError as err:
        _write(sys.stderr, f"error: {_one_line(err)}\n")
        return BAD_INPUT


def _show(args: argparse.Namespace) -> int:
    from quantizer.reporting import markdown, terminal
    from quantizer.reporting.store import read_run

    records = read_run(args.candidate)
    lines = terminal.render(records, width=_width(), path=str(args.candidate))
    _write(
        sys.stdout, markdown.render(records) if args.format == "markdown" else "".join(f"{line}\n" for line in lines)
    )
    return 0


def _width() -> int:
    return max(shutil.get_terminal_size((100, 24)).columns, 80)


def _diff(args: argparse.Namespace) -> int:
    from quantizer.reporting.diff import compare
    from quantizer.reporting.diff_views import render
    from quantizer.reporting.gate import gate
    from quantizer.reporting.store import read_run

    base, candidate = read_run(args.base), read_run(args.candidate)
    reasons = gate(base, candidate, args.fail_on, factor=args.factor, filtered=args.filtered)
    _write(sys.stdout, render(compare(base, candidate), args.format, width=_width()))
    _write(sys.stderr, "".join(f"gate: {reason}\n" for reason in reasons[:_MOST_REASONS]))
    if len(reasons) > _MOST_REASONS:
        _write(sys.stderr, f"gate: and {len(reasons) - _MOST_REASONS:,} more reasons\n")
    return FAILED if reasons else 0


def _reasons(text: str) -> frozenset[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in _WORDS:
            raise argparse.ArgumentTypeError(f"{word!r} is no reason to fail. Choose from {', '.join(_WORDS)}.")
    if not words:
        raise argparse.ArgumentTypeError(f"names no reason to fail. Choose from {', '.join(_WORDS)}.")
    return frozenset(words)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 1):
        raise argparse.ArgumentTypeError(f"must be a number of 1 or more, got {text!r}.")
    return value


def _one_line(err: QuantizerError) -> str:
    first, *rest = str(err).splitlines()
    return f"{first} ({len(rest)} more like it.)" if rest else first


def _write(stream: TextIO, text: str) -> None:
    """Write *text*; what the stream's encoding lacks is written as an escape."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
