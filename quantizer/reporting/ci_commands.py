"""The verbs of `quantizer report` for CI systems: merge, annotate, junit, statement."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from quantizer.core.wording import wrote

_MERGE = """\
example, three jobs and a fourth:
  pytest --op-shard=1/3 --op-report=shards/1
  pytest --op-shard=2/3 --op-report=shards/2
  pytest --op-shard=3/3 --op-report=shards/3
  quantizer report merge shards/1 shards/2 shards/3 -o reports/out
"""


def add_parsers(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs to `quantizer report`."""
    merge = verbs.add_parser(
        "merge",
        help="put the shards of a run together",
        description="Merge all shards of one run. The result has the same bytes as an unsharded run.",
        epilog=_MERGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    merge.add_argument("shards", metavar="SHARD", type=Path, nargs="+", help="folder that `pytest --op-shard` wrote")
    merge.add_argument("-o", "--output", metavar="RUN", type=Path, required=True, help="folder of the run to write")
    annotate = _of_run(
        verbs,
        "annotate",
        "say failures as annotations on the lines of specs",
        "Write each failure as a workflow command of GitHub, on the faulty line of the spec.",
    )
    annotate.add_argument("--prefix", metavar="DIR", default="", help="where the run was, from the repository's root")
    annotate.add_argument(
        "--limit", metavar="N", type=positive, default=10, help="annotations written (default: %(default)s)"
    )
    junit = _of_run(
        verbs,
        "junit",
        "write a run as JUnit XML",
        "Write a run as JUnit XML: a test case per item with its operator, scheme, platform, ratio and rerun command.",
    )
    junit.add_argument(
        "-o", "--output", type=Path, default=Path("junit.xml"), help="file to write (default: %(default)s)"
    )
    statement = _of_run(
        verbs,
        "statement",
        "state what a run tested, with which versions, and what it did not decide",
        "Write a conformance statement of a run: JSON to be read by programs, markdown to be read by people.",
    )
    statement.add_argument(
        "-o",
        "--output",
        metavar="NAME",
        type=Path,
        default=Path("statement"),
        help="files to write: NAME.json and NAME.md (default: %(default)s)",
    )


def _of_run(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, description: str
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text, description=description)
    verb.add_argument("candidate", metavar="RUN", type=Path, help="the directory of a run, or a records file")
    return verb


def positive(text: str) -> int:
    """Read a whole number of at least 1 from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}.")
    return int(text)


def _annotate(args: argparse.Namespace) -> int:
    from quantizer.core.streams import write_commands
    from quantizer.reporting.annotations import annotate
    from quantizer.reporting.complete_run import read_either

    records, facts = read_either(args.candidate)
    found = annotate(records, facts, prefix=args.prefix, limit=args.limit)
    write_commands(found)
    return 0


def _junit(args: argparse.Namespace) -> int:
    from quantizer.core.files import check_apart, replace_files
    from quantizer.reporting.complete_run import read_either
    from quantizer.reporting.junit import render
    from quantizer.reporting.store import run_files

    check_apart(run_files(args.candidate), [args.output])
    replace_files({args.output: render(*read_either(args.candidate))})
    sys.stdout.write(wrote(args.output))
    return 0


def _statement(args: argparse.Namespace) -> int:
    from quantizer.core.errors import CaseError
    from quantizer.core.files import check_apart, replace_files
    from quantizer.reporting.complete_run import read_complete_run
    from quantizer.reporting.statement import state
    from quantizer.reporting.statement_markdown import render
    from quantizer.reporting.store import run_files

    data, text = (args.output.parent / f"{args.output.name}{suffix}" for suffix in (".json", ".md"))
    check_apart(run_files(args.candidate), [data, text])
    records, facts = read_complete_run(args.candidate)
    if facts.shard:
        raise CaseError(f"{args.candidate}: is shard {facts.shard} of a run. Merge the shards: quantizer report merge.")
    stated = state(records, facts)
    replace_files({data: stated.to_json(), text: render(stated)})
    sys.stdout.write(wrote(data, text))
    return 0


def _merge(args: argparse.Namespace) -> int:
    from quantizer.core.errors import CaseError
    from quantizer.core.files import check_apart, replace_files
    from quantizer.reporting.folder import RunFolder
    from quantizer.reporting.machine import merged, write_machine
    from quantizer.reporting.shards import merge
    from quantizer.reporting.store import FAILURES, RECORDS, replay_files, run_files, write_run, write_timings
    from quantizer.reporting.tally import summary_of

    check_apart([file for folder in args.shards for file in run_files(folder)], [args.output / RECORDS])
    whole = merge(args.shards)
    replays = {name: content for folder in args.shards for name, content in replay_files(folder).items()}
    folder = RunFolder(args.output)
    folder.claim()
    try:
        replace_files({args.output / FAILURES / name: [text] for name, text in replays.items()}, CaseError)
        write_timings(args.output, whole.seconds)
        if (machine := merged(args.shards)) is not None:
            write_machine(args.output, machine)
        # run.json comes last: until it is there, no reader accepts the folder
        write_run(args.output, whole.records, summary_of(whole.records), whole.facts)
    finally:
        folder.release()
    sys.stdout.write(wrote(args.output))
    return 0


VERBS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "merge": _merge,
    "annotate": _annotate,
    "junit": _junit,
    "statement": _statement,
}
