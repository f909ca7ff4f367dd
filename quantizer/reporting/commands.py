"""`quantizer report`: shows a run with its coverage, compares two runs, and tells whether the second may pass."""

from __future__ import annotations

import argparse
import gc
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quantizer.reporting import ci_commands, history_commands

if TYPE_CHECKING:
    from quantizer.core.errors import QuantizerError
    from quantizer.core.facts import Facts
    from quantizer.core.record import Record
    from quantizer.reporting.diff import Diff

T = TypeVar("T")
FAILED = 1
BAD_INPUT = 2

_FORMATS = ("terminal", "markdown", "json")

_MOST_REASONS = 50
"""The largest number of reasons to fail that are written out."""

_EPILOG = """\
reasons to fail (--fail-on):
  new-failure  an item fails that did not fail in BASE
  regression   a worst ratio grew beyond 1, or, of accuracy and float, by more than the factor;
               or the worst error end to end grew by more than so many LSB
  coverage     an item is missing, or has fewer cases, more gaps or less coverage than in BASE

thresholds of a project, in tox.ini or as [tool.quantizer] in pyproject.toml:
  [quantizer]
  fail_on = new-failure, regression, coverage
  factor = 1.25
  lsb = 0.25

exit status: 0 nothing to fail on, 1 there is a reason to fail, 2 the input cannot be read

examples:
  quantizer report diff reports/baselines/gate.jsonl reports/out
  quantizer report diff BASE RUN --format markdown >> "$GITHUB_STEP_SUMMARY"
  quantizer report diff BASE RUN --fail-on new-failure,regression,coverage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `report` and its verbs to the command line."""
    report = subparsers.add_parser("report", help="read, compare and gate the records of runs")
    verbs = report.add_subparsers(title="verbs", dest="report_verb", metavar="VERB", required=True)
    _add_diff(verbs)
    _add_show(verbs)
    _add_html(verbs)
    history_commands.add_parser(verbs)
    ci_commands.add_parsers(verbs)


def _add_diff(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
        "--fail-on",
        metavar="A,B",
        type=_reasons,
        help="exit 1 for these reasons, or `none` (default: fail_on of tox.ini, else none)",
    )
    diff.add_argument(
        "--factor",
        metavar="F",
        type=_factor,
        help="growth of a ratio that is a regression (default: factor of tox.ini, else 1.25)",
    )
    diff.add_argument(
        "--lsb",
        metavar="N",
        type=_lsb,
        help="growth of the worst error, in output steps, that is a regression (default: lsb of tox.ini, else none)",
    )
    diff.add_argument(
        "--filtered", action="store_true", help="RUN was a selection (-k, --op-...): what it leaves out is not a loss"
    )


def _add_show(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    show = verbs.add_parser(
        "show", help="show one run", description="Show one run: failures, the worst items, coverage, gaps."
    )
    show.add_argument("candidate", metavar="RUN", type=Path, help="a records file, or the directory of a run")
    show.add_argument("--format", choices=_FORMATS[:2], default="terminal", help="how to write it (default: terminal)")
    show.add_argument(
        "--check",
        action="store_true",
        help="exit 1 if an item fails, none passes or a plugin is not judged; 2 if the run is not whole",
    )
    _figures(show)


def _add_html(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    html = verbs.add_parser(
        "html",
        help="write a run as one self-contained page",
        description="Write a run as one HTML page: no network, light and dark, whole without a script.",
    )
    html.add_argument("candidate", metavar="RUN", type=Path, help="a records file, or the directory of a run")
    html.add_argument("--baseline", metavar="BASE", type=Path, help="also show what changed since this run")
    _figures(html)
    html.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        help="trends, and since when operators fail, from `quantizer report history`",
    )
    html.add_argument("--op", metavar="OP", action="append", help="only this operator, every target of it (repeatable)")
    html.add_argument("--title", default="Conformance of quantized operators", help="heading (default: %(default)s)")
    html.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="file to write (default: %(default)s)"
    )


def _figures(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--faults", metavar="FILE", type=Path, help="kill rates, from `quantizer faults --json`")
    verb.add_argument(
        "--as-of", metavar="DAY", type=_day, help="day that ages are told by (default: of the run's commit)"
    )


def _day(text: str) -> str:
    from quantizer.core.defects import is_day

    if not is_day(text):
        raise argparse.ArgumentTypeError(f"must be a day such as 2027-01-31, got {text!r}.")
    return text


def run(args: argparse.Namespace) -> int:
    """Run the parsed command; return the exit status."""
    from quantizer.core.errors import QuantizerError

    collects = gc.isenabled()
    # A large run holds a million objects to the end, and the garbage collector would traverse them again and again.
    gc.disable()
    try:
        return _VERBS[args.report_verb](args)
    except QuantizerError as err:
        sys.stderr.write(f"error: {_one_line(err)}\n")
        return BAD_INPUT
    finally:
        # a caller that runs several commands gets its garbage collector back
        if collects:
            gc.enable()


def _show(args: argparse.Namespace) -> int:
    from quantizer.reporting import markdown, terminal
    from quantizer.reporting.store import read_kills

    kills = read_kills(args.faults) if args.faults else None
    records, facts, reasons = _run_to_show(args.candidate, check=args.check)
    if args.format == "markdown":
        text = markdown.render(records, facts=facts, kills=kills, as_of=args.as_of or "")
    else:
        lines = terminal.render(records, width=_width(), path=str(args.candidate))
        text = "".join(f"{line}\n" for line in (*lines, *markdown.kill_lines(kills)))
    sys.stdout.write(text)
    sys.stderr.write("".join(f"{'check' if args.check else 'warning'}: {reason}\n" for reason in reasons))
    return FAILED if args.check and reasons else 0


def _run_to_show(path: Path, *, check: bool) -> tuple[list[Record], Facts | None, list[str]]:
    """Return records, facts and, with *check*, why the run may not pass.

    Without *check* an incomplete run is shown with a warning.
    """
    from quantizer.reporting.complete_run import IncompleteRunError, read_complete_run, read_either, unaccounted
    from quantizer.reporting.store import read_run
    from quantizer.reporting.tally import reasons_against

    if check:
        records, said = read_complete_run(path)
        return records, said, [*reasons_against(records, said.exit), *(f"not judged: {t}" for t in unaccounted(said))]
    try:
        return *read_either(path), []
    except IncompleteRunError as err:
        return read_run(path), None, [_one_line(err)]


def _html(args: argparse.Namespace) -> int:
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.files import check_apart, is_folder, replace_files
    from quantizer.core.wording import suggestion, wrote
    from quantizer.reporting.blame import since
    from quantizer.reporting.complete_run import read_either
    from quantizer.reporting.history import ratios, trend
    from quantizer.reporting.page import render
    from quantizer.reporting.store import read_kills, run_files

    runs = [file for run in (args.candidate, args.baseline) if run for file in run_files(run)]
    # the page must not replace a file from which it is made
    check_apart([*runs, *filter(None, (args.history, args.faults))], [args.output])
    records, facts = read_either(args.candidate)
    base = read_either(args.baseline)[0] if args.baseline else None
    if args.op:
        known = {record.op for record in records}
        if missing := [op for op in args.op if op not in known]:
            raise UnsupportedError(f"--op {missing[0]}: no item of the run.{suggestion(missing[0], known, 'It has')}")
        records = [record for record in records if record.op in args.op]
        base = [record for record in base if record.op in args.op] if base is not None else None
    page = render(
        records,
        run=str(args.candidate),
        title=args.title,
        diff=_against(args.baseline, base, args.candidate, records) if base is not None else None,
        failures=args.candidate / "failures" if is_folder(args.candidate) else None,
        trends=ratios(args.history) if args.history else None,
        sinces=since(trend(args.history)) if args.history else None,
        kills=read_kills(args.faults) if args.faults else None,
        facts=facts,
        as_of=args.as_of or "",
    )
    replace_files({args.output: page})
    sys.stdout.write(wrote(args.output))
    return 0


def _width() -> int:
    # a pipe has no width, and a narrow table cannot be read
    return max(shutil.get_terminal_size((100, 24)).columns, 80)


def _against(
    base: Path, before: Sequence[Record], run: Path, after: Sequence[Record], *, filtered: bool = False
) -> Diff:
    """Compare the records of *base* with those of *run*, each with its machine file."""
    from quantizer.reporting.diff import compare
    from quantizer.reporting.machine import paired

    pair = paired(base, before, run, after)
    return compare(pair.base, pair.run, filtered=filtered, elsewhere=pair.elsewhere)


def _diff(args: argparse.Namespace) -> int:
    from quantizer.reporting.complete_run import read_either
    from quantizer.reporting.diff_views import render
    from quantizer.reporting.gate import reasons_to_fail
    from quantizer.reporting.thresholds import FACTOR, Thresholds, read_thresholds

    asked = Thresholds(args.fail_on, args.factor, args.lsb).over(read_thresholds(Path()))
    before, after = read_either(args.base)[0], read_either(args.candidate)[0]
    diff = _against(args.base, before, args.candidate, after, filtered=args.filtered)
    reasons = reasons_to_fail(
        diff,
        asked.fail_on or (),
        factor=FACTOR if asked.factor is None else asked.factor,
        lsb=math.inf if asked.lsb is None else asked.lsb,
    )
    sys.stdout.write(render(diff, args.format, width=_width()))
    sys.stderr.write("".join(f"gate: {reason}\n" for reason in reasons[:_MOST_REASONS]))
    if len(reasons) > _MOST_REASONS:
        sys.stderr.write(f"gate: and {len(reasons) - _MOST_REASONS:,} more reasons\n")
    return FAILED if reasons else 0


def _read(text: str, read: Callable[[str], T]) -> T:
    """Read an argument as the section of a project reads it; argparse says which argument is wrong."""
    from quantizer.core.errors import SpecError

    try:
        return read(text)
    except SpecError as err:
        raise argparse.ArgumentTypeError(str(err).removeprefix(": ")) from None


def _reasons(text: str) -> frozenset[str]:
    from quantizer.reporting.thresholds import read_reasons

    return _read(text, lambda words: read_reasons(words, ""))


def _factor(text: str) -> float:
    from quantizer.reporting.thresholds import read_number

    return _read(text, lambda word: read_number(word, "", least=1))


def _lsb(text: str) -> float:
    from quantizer.reporting.thresholds import read_number

    return _read(text, lambda word: read_number(word, "", least=0))


def _one_line(err: QuantizerError) -> str:
    first, *rest = str(err).splitlines()
    return f"{first} ({len(rest)} more like it.)" if rest else first


_VERBS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "diff": _diff,
    "show": _show,
    "html": _html,
    "history": history_commands.run,
    **ci_commands.VERBS,
}
