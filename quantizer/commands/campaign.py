"""`quantizer campaign`: runs generated cases for hours, locally or on a cluster, and continues after interruptions."""

from __future__ import annotations

import argparse
import concurrent.futures as cf
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from quantizer.commands.shared_options import add_plugins, add_specs
from quantizer.core.errors import UnsupportedError
from quantizer.core.files import check_apart, replace_files, resolved
from quantizer.core.wording import suggestion, to_install
from quantizer.core.workers import worker_pool

if TYPE_CHECKING:
    from quantizer.conformance.campaign.plan import Plan
    from quantizer.conformance.setup.options import Options

CLEAN, ALARMS = 0, 1
PATIENCE = "10s"
"""The time within which a scheduler must answer."""
TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}
"""Unit -> seconds; a number without a unit is in seconds."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `campaign` to the command line."""
    campaign = subparsers.add_parser(
        "campaign",
        help="run generated cases for hours",
        description="Run generated cases through every check. Findings are stored as they come: the same command "
        "continues an interrupted run.",
    )
    campaign.add_argument("--examples", type=int, help="number of data sets in all (default: until the time is over)")
    campaign.add_argument("--time", type=_seconds, help="start no further cases after this time: 90s, 30m, 8h")
    campaign.add_argument("--seed", type=int, default=0, help="seed of the cases (default: %(default)s)")
    campaign.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    campaign.add_argument("--op-platform", action="append", default=[], help="only this platform (repeatable)")
    campaign.add_argument("--op-scheme", action="append", default=[], help="only this scheme (repeatable)")
    campaign.add_argument("--op-engine", default="builtin", help="engine under test (default: %(default)s)")
    add_specs(campaign)
    add_plugins(campaign)
    where = campaign.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, help="local processes (default: one per core)")
    where.add_argument("--cluster", metavar="ADDRESS", help="a Dask scheduler, as tcp://host:8786 (extra `cluster`)")
    campaign.add_argument(
        "-o", "--output", type=Path, default=Path("reports/out/campaign"), help="folder (default: %(default)s)"
    )
    campaign.add_argument("--markdown", type=Path, help="write the histograms of ratios as a document")


def run(args: argparse.Namespace) -> int:
    """Start or continue a campaign; return 0 without an alarm, 1 with alarms."""
    from quantizer.conformance.campaign.control import run_campaign, store_failures
    from quantizer.conformance.campaign.journal import JOURNAL, PLAN, Journal
    from quantizer.conformance.campaign.record import markdown

    if args.examples is None and args.time is None:
        raise UnsupportedError("campaign: it would never end. Say --examples N, --time T, or both.")
    for option, value in (("--examples", args.examples), ("--workers", args.workers)):
        if value is not None and value < 1:
            raise UnsupportedError(f"{option}={value}: must be 1 or more.")
    # an interrupted campaign continues from these two: --markdown must not replace them
    own = [args.output / name for name in (PLAN, JOURNAL)]
    check_apart([*args.op_specs, *args.op_plugins, *own], filter(None, [args.markdown]))
    plan = _plan(args)
    local = args.workers or os.cpu_count() or 1
    start, workers = _cluster(args.cluster) if args.cluster else (_local(local), local)
    journal = Journal(args.output, plan)
    try:
        with _Bar(plan.examples) as bar:
            totals = run_campaign(plan, journal, start, workers, seconds=args.time, progress=bar.show)
    except KeyboardInterrupt:
        sys.stderr.write(f"{args.output}: what was found is kept. The same command continues the campaign.\n")
        # the command line turns it into the exit code of an interrupted program
        raise
    record = totals.record(plan, _tree())
    text = {args.output / "record.json": json.dumps(record, indent=1, sort_keys=True) + "\n"}
    replace_files(text | ({args.markdown: markdown(record)} if args.markdown else {}))
    written = store_failures(totals, args.output / "failures")
    lines = [f"{record['examples']:,} examples of {record['targets']} targets, {record['elements']:,} elements"]
    lines += [f"{failure.count} x {cause} ({failure.finding})" for cause, failure in sorted(totals.failures.items())]
    lines += [f"replay: quantizer case replay {path}{_options(args).arguments}" for path in written]
    lines += [f"{record['alarms']} alarms; record: {args.output / 'record.json'}"]
    sys.stdout.write(os.linesep.join(lines) + os.linesep)
    return ALARMS if record["alarms"] else CLEAN


def _options(args: argparse.Namespace) -> Options:
    from quantizer.conformance.setup.options import Options

    # absolute, because workers of a cluster have other current folders
    specs, plugins = (tuple(map(resolved, paths)) for paths in (args.op_specs, args.op_plugins))
    return Options(
        root=Path.cwd(),
        specs=specs,
        plugins=plugins,
        engine=args.op_engine,
        platforms=tuple(args.op_platform),
        schemes=tuple(args.op_scheme),
    )


def _plan(args: argparse.Namespace) -> Plan:
    from quantizer.conformance.campaign.plan import Plan
    from quantizer.conformance.setup.session import open_session
    from quantizer.runtime.isolation.plugins import judged

    options = _options(args)
    specs, plugins = options.specs, options.plugins
    found = judged(options.plugins, dict(os.environ))
    session = open_session(options, tuple(folder for plugin in found for folder in plugin.specs))
    for op in args.op:
        if op not in session.library.specs:
            raise UnsupportedError(f"--op={op}: no such name.{suggestion(op, session.library.specs, 'Known')}")
    targets = [
        target.id
        for spec in session.library.specs.values()
        if not args.op or spec.op in args.op
        for target in session.targets(spec)
        if session.engine.supports(target.spec, target.scheme, target.platform) is None
    ]
    if not targets:
        raise UnsupportedError("campaign: the options leave no target to judge. Remove or change one of them.")
    own_specs, own_plugins = (tuple(map(str, given)) for given in (specs, plugins))
    return Plan(tuple(targets), args.examples, args.seed, args.op_engine, own_specs, own_plugins)


def _local(workers: int) -> Callable[[], cf.Executor]:
    # a function, because a pool with a crashed worker is replaced by a new one
    return lambda: worker_pool(workers)


def _cluster(address: str) -> tuple[Callable[[], cf.Executor], int]:
    """Return a function that gives a Dask executor, and the number of threads; UnsupportedError without a scheduler."""
    try:
        from distributed import Client
    except ImportError:
        raise UnsupportedError(f"--cluster: distributed is not installed; {to_install('cluster')}.") from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as err:
        raise UnsupportedError(
            f"--cluster={address}: no scheduler answers: {err}. Start one: dask scheduler."
        ) from None
    workers = sum(client.nthreads().values()) or 1
    # a worker of a cluster may go away at any time
    return lambda: client.get_executor(retries=2), workers


def _tree() -> str:
    """Return git's hash of the tree at HEAD, with `+changes` if tracked files differ; empty outside a repository."""
    # of the checkout that judges, which need not be the current folder
    here = Path(__file__).parent
    answers = []
    for words in (["rev-parse", "HEAD^{tree}"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            command = ["git", "-C", str(here), *words]
            found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError:
            return ""
        answers.append(found.stdout.strip())
    return answers[0] + ("+changes" if answers[1] else "")


def _seconds(text: str) -> float:
    found = TIME.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number with s, m or h, such as 90s or 8h")
    return float(found[1]) * SECONDS[found[2]]


class _Bar:
    """A progress bar on a terminal, with examples, rate and causes of failure."""

    def __init__(self, total: int | None) -> None:
        from tqdm import tqdm

        # disable=None: no bar unless stderr is a terminal
        self._bar = tqdm(total=total, unit="example", disable=None, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.close()

    def show(self, examples: int, failures: int) -> None:
        """Show the progress of the run."""
        self._bar.update(examples - self._bar.n)
        if failures:
            self._bar.set_postfix(failures=failures)
