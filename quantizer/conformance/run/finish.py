"""Finishes a run: completes the records, writes records, summary, facts and timings, and compares with the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from quantizer.conformance.run.collection import ItemState, collect
from quantizer.conformance.run.graph_items import collect_graph
from quantizer.conformance.run.machine_facts import machine
from quantizer.conformance.run.spec_files import first_key
from quantizer.conformance.run.state import ENDED, Run
from quantizer.conformance.setup.options import Options
from quantizer.core.errors import QuantizerError
from quantizer.core.facts import Facts
from quantizer.core.record import Record, read_records
from quantizer.reporting.complete_run import read_either
from quantizer.reporting.gate import gate
from quantizer.reporting.machine import paired, split, write_machine
from quantizer.reporting.store import write_run, write_timings
from quantizer.reporting.tally import is_failing, summary_of
from quantizer.reporting.thresholds import FACTOR, FAIL_ON


def complete(run: Run, options: Options, extra: list[Path], status: int) -> list[Record]:
    """Return a record for every item; items without a record fail, and the run says what is missing."""
    records = [*read_records([*run.records.values()], "run")]
    left = [name for name in run.items if name not in run.records]
    for name in left:
        # under xdist only the worker had the state
        found = run.items[name] or _state(name, options, extra)
        reason = run.crashed.get(name) or "did not run to its end: the session stopped"
        records.append(found.record("failed", reason))
        run.specs.setdefault(found.op, found.facts)
    unfinished = sorted(name.rpartition("::")[2] for name in left if name not in run.crashed)
    if status not in ENDED:
        run.lacks.append(f"pytest ended with exit status {int(status)}.")
    if unfinished:
        text = "1 item" if len(unfinished) == 1 else f"{len(unfinished):,} items"
        run.lacks.append(f"{text} of {len(run.items):,} did not run to the end, such as {unfinished[0]}.")
    run.lacks += [f"{name}: could not be collected." for name in run.uncollected]
    run.lacks += run.damage(status) + run.strangers()
    if run.left:
        run.lacks.append(f"what was judged left {run.left} process(es) behind, which were ended.")
    return sorted(records, key=lambda record: record.id)


def _state(node_id: str, options: Options, extra: list[Path]) -> ItemState:
    """Return the state behind an item that a worker collected, from its spec."""
    place, _, name = node_id.rpartition("::")

    def never() -> None:
        raise AssertionError("an item that did not run opens no session")

    path = (options.root / place).resolve()
    found: Iterator[ItemState] = (
        collect_graph(path, place, options)
        if first_key(path) == "graph"
        else collect(path, place, options, never, [*extra])  # type: ignore[arg-type]
    )
    return next(state for state in found if state.name == name)


def close_run(run: Run, records: Sequence[Record], facts: Facts, options: Options, *, filtered: bool) -> list[str]:
    """Write records, summary, facts, machine.json and timings.

    Return the reasons why the run fails against the baseline.
    """
    assert run.folder is not None
    run.folder.close_journal()
    # figures that depend on the processor go to machine.json, so that records are the same on every machine
    records, figures = split(records)
    here = machine(figures)
    write_machine(options.reports, here)
    write_timings(options.reports, run.seconds)
    write_run(options.reports, records, summary_of(records), facts)
    if options.baseline is None:
        return []
    try:
        base, _ = read_either(options.baseline)
        pair = paired(options.baseline, base, here, records)
    except QuantizerError as err:
        return [str(err)]
    asked = options.thresholds
    return gate(
        pair.base,
        pair.run,
        FAIL_ON if asked.fail_on is None else asked.fail_on,
        factor=FACTOR if asked.factor is None else asked.factor,
        lsb=math.inf if asked.lsb is None else asked.lsb,
        filtered=filtered or options.narrowed,
        elsewhere=pair.elsewhere,
    )


def status_of(status: int, records: Sequence[Record], run: Run) -> int:
    """Return pytest's exit status, or a failure if pytest passed although a record fails or the run is not whole."""
    # a damaged judge: no verdict of the run counts, so it is worse than a failure
    if run.damage(status):
        return pytest.ExitCode.INTERNAL_ERROR
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and (
        run.lacks or any(map(is_failing, records))
    ):
        return pytest.ExitCode.TESTS_FAILED
    return status


def nothing_selected(options: Options, names: Sequence[str]) -> str | None:
    """Return a message about a selection of the command line that matched no item's name; None if all matched."""
    cases = [name.split("-") for name in names]
    for option, given, place in (("--op-platform", options.platforms, 2), ("--op-scheme", options.schemes, 1)):
        for value in given:
            if not any(len(words) > place and words[place] == value for words in cases):
                return f"{option}={value}: selects no item. Leave it out, or name operators that it applies to."
    return None


def functions(run: Run, records: Sequence[Record], library_platforms: Mapping[str, object], options: Options) -> None:
    """Record for each function of a plugin whether an item judged it."""
    from quantizer.conformance.run.plugin_coverage import account

    run.functions = account(records, [*library_platforms], options.root)
