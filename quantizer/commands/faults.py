"""`quantizer faults`: plants every fault of the catalogue and shows which checks find it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from quantizer.commands.shared_options import add_plugins, add_specs, whole_number

if TYPE_CHECKING:
    from quantizer.conformance.faults.matrix import Job, Result, Row
    from quantizer.conformance.faults.places import Place

FOUND, SURVIVORS = 0, 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `faults` to the command line."""
    faults = subparsers.add_parser(
        "faults",
        help="measure which seeded faults the checks find",
        description="Plant every fault of the catalogue and show which checks find it, after how many cases and "
        "milliseconds. Exit code 1 where a fault survives, or where a check fails on the unchanged operator.",
    )
    faults.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    faults.add_argument("--fault", action="append", default=[], help="only this fault (repeatable)")
    add_specs(faults)
    add_plugins(faults)
    faults.add_argument(
        "--corpus",
        type=whole_number,
        nargs="?",
        const=20_000,
        default=0,
        metavar="N",
        help="also run pairs without effect in the gate's cases, listed or not, on N generated cases of each operator "
        "(without a number: 20000, which takes minutes for each operator)",
    )
    faults.add_argument("--peers", action="store_true", help="also judge the faults by other tools' tolerances")
    faults.add_argument(
        "--schedule",
        action="store_true",
        help="run only the checks that the gate profile runs on each case: faults that its sampling of costly checks "
        "misses then survive",
    )
    faults.add_argument(
        "--real",
        action="store_true",
        help="plant the bugs that public trackers report (cases/real_bugs), under the conditions in which they were "
        "seen, instead of the catalogue",
    )
    faults.add_argument(
        "--sample",
        metavar="DAY",
        help="with --real, only the reports that were drawn on this day (cases/real_bugs/sample_DAY.jsonl)",
    )
    faults.add_argument(
        "--places",
        action="store_true",
        help="count each fault separately by operator, platform and arithmetic",
    )
    faults.add_argument(
        "--list",
        action="store_true",
        help="with --places, over all operators and faults: write the faults without effect on a platform, with their "
        "reasons, to cases/faults/without_effect.jsonl",
    )
    faults.add_argument(
        "--workers", type=whole_number, default=None, metavar="N", help="processes (default: one per core)"
    )
    faults.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    faults.add_argument("-o", "--output", type=Path, help="write the matrix to this file, as markdown")


def run(args: argparse.Namespace) -> int:
    """Run the matrix; return 0 if every fault with an effect is found, 1 if one survives or an alarm is raised."""
    from quantizer.conformance.faults.document import document
    from quantizer.conformance.faults.places import FAILING
    from quantizer.conformance.faults.places_document import places_document
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.files import check_apart, replace_files

    # before hours of work: an output must not replace an input
    check_apart([*args.op_specs, *args.op_plugins], filter(None, [args.output]))
    if args.list and (not args.places or args.op or args.fault or args.op_specs or args.op_plugins):
        raise UnsupportedError(
            "--list writes the whole list: it needs --places, and takes neither operators nor faults."
        )
    if args.sample and (not args.real or args.output is not None):
        raise UnsupportedError(
            "--sample needs --real. It cannot be combined with -o, which writes the page of all reports."
        )
    if args.real:
        return _real(args)
    results = _results(_jobs(args), args.workers)
    places = [place for result in results for place in result.places]
    alarms = sum(len(result.alarms) for result in results)
    if args.list:
        _write_list(places)
    if args.output is not None:
        replace_files({args.output: places_document(places, alarms) if args.places else document(results)})
    sys.stdout.write((_json(results) if args.json else _text(results)) + os.linesep)
    outcomes = {*(place.outcome for place in places), *(row.outcome for result in results for row in result.rows)}
    failing = not outcomes.isdisjoint(FAILING)
    return SURVIVORS if failing or alarms else FOUND


def _write_list(places: list[Place]) -> None:
    """Replace the rows of the list that name platforms, and keep the rows for all platforms."""
    from quantizer.conformance.faults.places import silent_places
    from quantizer.conformance.faults.without_effect import EVERYWHERE, FILE, LISTED, read_places, with_places
    from quantizer.conformance.setup.options import Options
    from quantizer.core.files import replace_files

    cases = Options(root=Path.cwd()).cases
    known = {(fault, op) for fault, op, platform in read_places(cases) if platform == EVERYWHERE}
    silent = {key: reason for key, reason in silent_places(places).items() if key[:2] not in known}
    replace_files({cases / FILE: with_places(LISTED.text_of(cases / FILE), silent)})


def _real(args: argparse.Namespace) -> int:
    """Plant the reported bugs. Return 0 if every planted bug is caught and every correct twin is green."""
    from quantizer.conformance.real.document import CAUGHT, document, standing, summary
    from quantizer.conformance.real.graphs import rewritten
    from quantizer.conformance.real.reports import read_reports, read_samples
    from quantizer.conformance.real.run import Job, all_of
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.files import replace_files
    from quantizer.core.workers import worker_pool

    options = Options(root=Path.cwd(), specs=tuple(args.op_specs), plugins=tuple(args.op_plugins))
    known = set(open_session(options).library.specs)
    drawn = [r for r in read_reports(options.cases) if not args.sample or r.sample == args.sample]
    if not drawn:
        raise UnsupportedError(f"--sample={args.sample}: no reports were drawn on this day. See cases/real_bugs.")
    reports = [r for r in drawn if not args.op or set(r.ops) & set(args.op)]
    ops = sorted({op for report in reports for op in report.ops if not args.op or op in args.op})
    if not ops or not set(ops) <= known:
        missing = sorted(set(ops) - known) or args.op
        raise UnsupportedError(
            f"--real: no report is planted in {', '.join(missing) or 'any operator'}. See cases/real_bugs."
        )
    jobs = [Job(options, dict(os.environ), op, tuple(r for r in reports if op in r.ops)) for op in ops]
    with worker_pool(min(args.workers or os.cpu_count() or 1, len(jobs))) as executor:
        # submitted first, so that it runs beside the operators
        of_graphs = executor.submit(rewritten, reports)
        found = [outcome for outcomes in all_of(jobs, executor) for outcome in outcomes] + of_graphs.result()
    order = {report.ref: place for place, report in enumerate(reports)}
    outcomes = sorted(found, key=lambda outcome: (order[outcome.ref], outcome.op))
    if args.output is not None:
        replace_files({args.output: document(reports, outcomes, read_samples(options.cases))})
    if args.json:
        sys.stdout.write(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1) + os.linesep)
    else:
        shown = [dataclasses.asdict(outcome) for outcome in outcomes]
        sys.stdout.write(tabulate(shown, headers="keys") + os.linesep + summary(reports, outcomes) + os.linesep)
    planted = [(r, [o for o in outcomes if o.ref == r.ref]) for r in reports if not r.unreached]
    green = all(standing(r, own) == CAUGHT for r, own in planted) and not any(o.twin for o in outcomes)
    return FOUND if green else SURVIVORS


def _jobs(args: argparse.Namespace) -> list[Job]:
    """Return one job for each requested operator; UnsupportedError for an unknown name or an empty choice."""
    from quantizer.conformance.faults import catalogue, pairs
    from quantizer.conformance.faults.matrix import Job
    from quantizer.conformance.faults.without_effect import EVERYWHERE, read_places
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.wording import suggestion
    from quantizer.runtime.isolation.plugins import judged

    environment = dict(os.environ)
    plugins = judged(args.op_plugins, environment)
    options = Options(root=Path.cwd(), specs=tuple(args.op_specs), plugins=tuple(args.op_plugins))
    session = open_session(options, tuple(folder for plugin in plugins for folder in plugin.specs))
    known = {fault.id for fault in catalogue()}
    for option, names, legal in (("--op", args.op, set(session.library.specs)), ("--fault", args.fault, known)):
        for name in names:
            if name not in legal:
                raise UnsupportedError(f"{option}={name}: no such name.{suggestion(name, sorted(legal), 'Known')}")
    planted: dict[str, list[str]] = {op: [] for op in session.library.specs if not args.op or op in args.op}
    for fault, op in pairs(session.library.specs.values()):
        if op in planted and (not args.fault or fault.id in args.fault):
            planted[op].append(fault.id)
    if not any(planted.values()):
        raise UnsupportedError(
            f"{', '.join(args.fault) or 'the catalogue'} concerns none of {', '.join(args.op) or 'the operators'}. "
            "Name another fault, or add one in quantizer/conformance/faults."
        )
    listed = read_places(options.cases)
    return [
        Job(
            options,
            environment,
            op,
            tuple(names),
            # a list that is written anew must not rest on its own former rows
            {key: reason for key, reason in listed.items() if key[1] == op and (not args.list or key[2] == EVERYWHERE)},
            args.corpus,
            args.peers,
            args.schedule,
            args.places,
        )
        for op, names in planted.items()
        if names
    ]


def _results(jobs: list[Job], workers: int | None) -> list[Result]:
    """Run *jobs* in processes, beginning with the most faults; return results in the order of the jobs."""
    from tqdm import tqdm

    from quantizer.conformance.faults.matrix import matrix, run
    from quantizer.core.workers import worker_pool

    count = min(workers or os.cpu_count() or 1, len(jobs))
    order = {job.op: place for place, job in enumerate(jobs)}
    total = sum(len(job.faults) for job in jobs)
    found: list[Result] = []
    with tqdm(total=total, unit="fault", disable=None, file=sys.stderr) as bar:
        # a single worker needs no other process
        if count == 1:
            for job in jobs:
                found.append(run(job))
                bar.update(len(job.faults))
            return found
        with worker_pool(count) as executor:
            try:
                # the longest first, so that no processor waits for it at the end
                for result in matrix(sorted(jobs, key=lambda job: -len(job.faults)), executor):
                    found.append(result)
                    bar.update(len(result.rows) or len({place.fault for place in result.places}))
            except BaseException:
                # also after Ctrl-C: jobs that have not begun would run for hours
                executor.shutdown(wait=False, cancel_futures=True)
                raise
    return sorted(found, key=lambda result: order[result.op])


def _json(results: list[Result]) -> str:
    from quantizer.conformance.faults.places import SURVIVES

    rows = [row for result in results for row in result.rows]
    return json.dumps(
        {
            "places": [dataclasses.asdict(place) for result in results for place in result.places],
            "pairs": [_plain(row) for row in rows],
            "survivors": sum(row.outcome == SURVIVES for row in rows),
            "alarms": [alarm for result in results for alarm in result.alarms],
        },
        indent=1,
    )


def _plain(row: Row) -> dict[str, Any]:
    found = dataclasses.asdict(row)
    found["kills"] = [{**kill, "ms": round(kill["ms"], 1)} for kill in found["kills"]]
    return found


def _text(results: list[Result]) -> str:
    from quantizer.conformance.faults.document import summary
    from quantizer.conformance.faults.places import KILLED, STALE, SURVIVES, UNDECIDED, WITHOUT

    rows = [row for result in results for row in result.rows]
    if any(result.places for result in results):
        return _places_text(results)
    shown = [
        {
            "fault": row.fault,
            "place": row.place,
            "op": row.op,
            "found by, after cases (ms)": ", ".join(f"{k.check} {k.cases} ({k.ms:.0f})" for k in row.kills)
            or row.outcome.upper(),
            "of": row.cases,
        }
        for row in rows
        if row.outcome in (KILLED, SURVIVES, STALE)
    ]
    lines = [tabulate(shown, headers="keys"), ""] if shown else []
    for result in results:
        silent = [row.fault for row in result.rows if row.outcome == WITHOUT]
        open_questions = [row.fault for row in result.rows if row.outcome == UNDECIDED]
        lines += [f"without effect in {result.op}: {', '.join(silent)}"] if silent else []
        if open_questions:
            lines.append(f"changes nothing in the gate's cases of {result.op}: {', '.join(open_questions)} (--corpus)")
        lines += [
            f"ALARM on the unchanged operator: {target}: {check}: {case}" for target, check, case in result.alarms
        ]
    return "\n".join([*lines, summary(results)])


def _places_text(results: list[Result]) -> str:
    from quantizer.conformance.faults.places import KILLED, WITHOUT
    from quantizer.conformance.faults.places_document import places_summary

    places = [place for result in results for place in result.places]
    lines = [
        f"{place.outcome}: {place.fault} in {place.op} on {place.platform}, {place.arithmetic}, {place.cases} cases"
        for place in places
        if place.outcome not in (KILLED, WITHOUT)
    ]
    alarms = [alarm for result in results for alarm in result.alarms]
    lines += [f"ALARM on the unchanged operator: {target}: {check}: {case}" for target, check, case in alarms]
    return "\n".join([*lines, places_summary(places, len(alarms))])
