"""`quantizer report history`: keeps runs in one file, and shows how figures change."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.core.files import is_folder
from quantizer.reporting.ci_commands import positive
from quantizer.reporting.figures import NOTHING, figure, ratio_text

if TYPE_CHECKING:
    from quantizer.reporting.history import Figures

_EPILOG = """\
examples:
  quantizer report history add history.sqlite reports/out --name "$GITHUB_SHA"
  quantizer report history trend history.sqlite --op conv2d --format csv
  quantizer report history since history.sqlite
  quantizer report html reports/out --history history.sqlite
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `history` and its own verbs to `quantizer report`."""
    history = verbs.add_parser(
        "history",
        help="keep runs in one file, and show how figures move",
        description="Runs in one SQLite file: many jobs append to it at once; a damaged file is left as it is.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    own = history.add_subparsers(title="verbs", dest="history_verb", metavar="VERB", required=True)
    add = _verb(own, "add", "append a run")
    add.add_argument("run", metavar="RUN", type=Path, help="a records file, or the directory of a run")
    add.add_argument("--name", required=True, help="the name of the run, such as its commit")
    add.add_argument("--faults", metavar="FILE", type=Path, help="kill rates, from `quantizer faults --json`")
    trend = _verb(own, "trend", "figures of every operator, run by run")
    trend.add_argument("--op", help="only this operator")
    trend.add_argument("--last", type=positive, default=20, help="newest runs (default: %(default)s)")
    trend.add_argument("--format", choices=("terminal", "csv", "json"), default="terminal", help="how to write it")
    _verb(own, "since", "name the run since which each failing operator fails")
    merge = _verb(own, "merge", "append the runs of other histories; shards of one name become one run")
    merge.add_argument("others", metavar="OTHER", type=Path, nargs="+", help="histories of shards or of other places")
    prune = _verb(own, "prune", "delete all runs except the newest")
    prune.add_argument("--keep", type=positive, required=True, help="how many runs stay")


def run(args: argparse.Namespace) -> int:
    """Run the parsed command; CaseError for a file that is damaged or not a history."""
    return _VERBS[args.history_verb](args)


def _verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    verb.add_argument("file", metavar="FILE", type=Path, help="the history")
    return verb


def _add(args: argparse.Namespace) -> int:
    from quantizer.reporting.complete_run import read_either
    from quantizer.reporting.history import append, figures_of
    from quantizer.reporting.store import read_kills, read_timings

    records, _ = read_either(args.run)
    seconds = read_timings(args.run) if is_folder(args.run) else {}
    append(args.file, args.name, figures_of(records, seconds, read_kills(args.faults) if args.faults else {}))
    return 0


def _since(args: argparse.Namespace) -> int:
    from quantizer.reporting.blame import since
    from quantizer.reporting.history import trend

    found = since(trend(args.file))
    sys.stdout.writelines(f"{op}: {since.text}\n" for op, since in found.items())
    if not found:
        sys.stdout.write("no operator fails in its newest run\n")
    return 0


def _merge(args: argparse.Namespace) -> int:
    from quantizer.reporting.history import merge

    merge(args.file, args.others)
    return 0


def _prune(args: argparse.Namespace) -> int:
    from quantizer.reporting.history import prune

    gone = prune(args.file, args.keep)
    sys.stdout.write(f"{gone:,} {'run' if gone == 1 else 'runs'} forgotten\n")
    return 0


def _trend(args: argparse.Namespace) -> int:
    from quantizer.core.errors import UnsupportedError
    from quantizer.reporting.history import COLUMNS, trend

    found = trend(args.file, op=args.op, last=args.last)
    if args.op and not found:
        raise UnsupportedError(f"{args.op!r}: no run of {args.file} holds this operator.")
    rows = [{"op": op, "run": name, **_plain(figures)} for op, name, figures in found]
    if args.format == "json":
        sys.stdout.write(json.dumps(rows, indent=2, allow_nan=False) + "\n")
    elif args.format == "csv":
        text = io.StringIO()
        # line feeds only, for the same bytes on every system
        writer = csv.DictWriter(text, ["op", "run", *COLUMNS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        sys.stdout.write(text.getvalue())
    else:
        from tabulate import tabulate

        shown = [[op, name, *_texts(figures)] for op, name, figures in found]
        align = ("left", "left", *("right" for _ in COLUMNS))
        table = tabulate(shown, headers=["op", "run", *COLUMNS], disable_numparse=True, colalign=align)
        sys.stdout.write(table + "\n")
    return 0


def _plain(figures: Figures) -> dict[str, object]:
    """Return the figures as JSON values; an infinite ratio is the string "inf"."""
    return {
        name: "inf" if isinstance(value, float) and math.isinf(value) else value
        for name, value in asdict(figures).items()
    }


def _texts(figures: Figures) -> Iterator[str]:
    """Format the figures as reports do: rounded, with a dash for a missing one."""
    for name, value in asdict(figures).items():
        if value is None:
            yield NOTHING
        else:
            yield ratio_text(value) if name == "ratio" else figure(value)


_VERBS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "add": _add,
    "trend": _trend,
    "since": _since,
    "merge": _merge,
    "prune": _prune,
}
