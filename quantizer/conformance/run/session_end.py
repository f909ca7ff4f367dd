"""pytest hooks at the end of a session: they write the run, or why it is not whole, and the terminal summary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quantizer.conformance.run.command_line import named, options
from quantizer.conformance.run.folder_lock import lock_run_folder
from quantizer.conformance.run.shipped import KEY as SHIPPED
from quantizer.conformance.run.stash_keys import CANARY, EXTRA, INPUTS, MADE, PLUGINS, RUN, STATE
from quantizer.conformance.run.state import ENDED, Run, selection
from quantizer.conformance.run.under_test import connect_layers, end, registered
from quantizer.core.wording import obeyed_by_none

if TYPE_CHECKING:
    from quantizer.conformance.setup.options import Options
    from quantizer.reporting.folder import RunFolder

NOTHING = "quantizer: no spec is here. Name a file or folder of specs, or a shipped operator: --op-shipped=conv2d."
NOT_COMPUTED = (
    "quantizer: no item of --op-shipped={ops}: no engine or platform of this run computes it. "
    "`quantizer engine list` shows the platforms of each engine, --op-platform names one."
)


def selects_nothing(config: pytest.Config, run: Run) -> str | None:
    """Return the named platform or scheme that has no item; None if a keyword or a shard may have left items out."""
    from quantizer.conformance.run.finish import nothing_selected

    asked = options(config)
    if asked.shard is not None or selection(config) or not (asked.platforms or asked.schemes) or not run.items:
        return None
    return nothing_selected(asked, [name.rpartition("::")[2] for name in run.items])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Plant a fault in a judged function; then the writing process writes the run and reads the baseline."""
    config = session.config
    # before plugins end: the canary runs their functions
    said = _canary_ran(config) if exitstatus in ENDED else None
    run = config.stash.get(RUN, None)
    if config.stash[PLUGINS]:
        connect_layers(config, () if run is None else run.spec_files())
    left = end(config)
    made: set[str] = config.stash[MADE]
    # a worker of xdist: `workeroutput` takes its results to the process that writes files
    if run is None:
        if said is not None:
            config.workeroutput["op_canary"] = said  # type: ignore[attr-defined]
        if left:
            config.workeroutput["op_left"] = left  # type: ignore[attr-defined]
        config.workeroutput["op_functions"] = registered(config)  # type: ignore[attr-defined]
        config.workeroutput["op_made"] = sorted(made)  # type: ignore[attr-defined]
        return
    if said is not None:
        run.sung("", said)
    run.left += left
    run.has_functions("", registered(config))
    run.made |= made
    # under xdist this process collected nothing, so it may not have locked the folder yet
    if run.items:
        with contextlib.suppress(pytest.UsageError):
            lock_run_folder(config)
    if run.folder is None:
        return
    try:
        session.exitstatus = _finish(config, run, exitstatus)
    finally:
        run.folder.release()


def _canary_ran(config: pytest.Config) -> tuple[int, str] | None:
    canary = config.stash.get(CANARY, None)
    return None if canary is None else canary.check(STATE)


def _finish(config: pytest.Config, run: Run, status: int) -> int:
    """Write the run, or say why it is not whole; return the exit status."""
    from quantizer.core.errors import QuantizerError

    assert run.folder is not None
    empty = status == pytest.ExitCode.NO_TESTS_COLLECTED
    if not run.items and not (options(config).shard and empty):
        return _finish_without_items(config, run, run.folder, status)
    try:
        status = _write(config, run, run.folder, status)
    except QuantizerError as err:
        run.unwritten = str(err)
        with contextlib.suppress(QuantizerError):
            run.folder.fail(f"its records could not be written: {run.unwritten.splitlines()[0]}")
        return pytest.ExitCode.USAGE_ERROR
    return pytest.ExitCode.TESTS_FAILED if run.problems and status == 0 else status


def _finish_without_items(config: pytest.Config, run: Run, folder: RunFolder, status: int) -> int:
    """Restore the folder's former content, unless the session was stopped or meant to run items; return the status."""
    from quantizer.core.errors import QuantizerError

    if status != pytest.ExitCode.INTERRUPTED:  # torch may be half imported: no second import
        _account(config, run)
    try:
        if status in ENDED and not named(config):
            folder.restore()
        else:
            folder.fail(f"pytest ended with exit status {int(status)}, and no item of an operator was collected.")
    except QuantizerError as err:
        run.unwritten = str(err)
        return pytest.ExitCode.USAGE_ERROR
    return status


def _write(config: pytest.Config, run: Run, folder: RunFolder, status: int) -> int:
    """Write records and facts of a run with items; return the exit status that they give it."""
    from quantizer.conformance.run.finish import close_run, complete, functions, status_of

    asked, extra = options(config), config.stash[EXTRA]
    # a shard without items is a valid part of a run
    empty = status == pytest.ExitCode.NO_TESTS_COLLECTED
    records = complete(run, asked, extra, status)
    run.lacks += _damages(config, folder)
    if problem := selects_nothing(config, run):
        run.lacks.append(problem)
        status = pytest.ExitCode.USAGE_ERROR
    status = status_of(pytest.ExitCode.OK if asked.shard and empty else status, records, run)
    functions(run, records, asked.library(extra).platforms, asked)
    facts = run.facts(config, asked, extra, config.stash[PLUGINS])
    judged = {f"{record.op}/{record.platform}" for record in records if record.platform}
    run.readings = [name for name in facts.readings if name.partition(":")[0] in judged]
    run.unread = sorted({*facts.readings, *asked.readings} - {*run.readings})
    facts = facts.model_copy(update=_told(run, asked, status))
    run.problems = close_run(run, records, facts, asked, filtered=run.deselected or bool(selection(config)))
    return status


def _damages(config: pytest.Config, folder: RunFolder) -> Iterator[str]:
    """Yield what changed in the run's folder or its inputs during the run; copies of the inputs are deleted."""
    if problem := folder.damage():
        yield problem
    if (inputs := config.stash.get(INPUTS, None)) is not None:
        if changed := inputs.changed():
            yield f"{changed}: changed while the run was under way."
        yield from inputs.sweep()


def _told(run: Run, asked: Options, status: int) -> dict[str, Any]:
    """Return the facts that are known only at the end of the run."""
    items = sorted(name.rpartition("::")[2] for name in run.items)
    # shards leave out each other's items, which is no selection
    unselected = run.made.difference(items)
    return {
        "items": items,
        "readings": run.readings,
        "exit": int(status),
        "lacks": run.lacks,
        "functions": run.functions,
        "left_out": sorted(name for name in unselected if not asked.shard or asked.shard.holds(name)),
    }


def _account(config: pytest.Config, run: Run) -> None:
    """Record the functions of plugins in a session without conformance items."""
    from quantizer.conformance.run.finish import functions
    from quantizer.core.errors import QuantizerError

    extra: list[Path] = config.stash[EXTRA]
    if config.stash[PLUGINS] and not config.getoption("collectonly"):
        with contextlib.suppress(QuantizerError):
            functions(run, [], options(config).library(extra).platforms, options(config))


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Show the worst items, totals, gaps, and the reasons why the run fails against the baseline."""
    run = config.stash.get(RUN, None)
    if run is None:
        return
    if run.functions and options(config).golden_update is None:
        _show_functions(terminalreporter, run)
    if not run.records:
        is_empty = not run.items and not run.deselected and options(config).shard is None
        if named(config) and is_empty and exitstatus != pytest.ExitCode.INTERRUPTED:
            ops = ", ".join(config.getoption(SHIPPED) or ())
            _say(terminalreporter, NOT_COMPUTED.format(ops=ops) if ops else NOTHING, yellow=True)
        _show_problems(terminalreporter, run)
        return
    from quantizer.core.record import read_records
    from quantizer.reporting.terminal import left_out_lines, render

    records = [*read_records([*run.records.values()], "run")]
    if config.get_verbosity() < 0:
        for line in left_out_lines(records, width=terminalreporter._tw.fullwidth):
            _say(terminalreporter, line, yellow=True)
    else:
        where = options(config).shown(options(config).reports / "records.jsonl")
        terminalreporter.section("operators")
        for line in render(records, width=terminalreporter._tw.fullwidth, path=where):
            _say(terminalreporter, line)
    for change in sorted(run.changes):
        _say(terminalreporter, f"golden: {change}")
    for entry in sorted(run.replaced):
        _say(terminalreporter, f"replaced: {entry}")
    _show_readings(terminalreporter, run)
    for text in _without_enclosure(run):
        _say(terminalreporter, text, yellow=True)
    for problem in run.problems:
        _say(terminalreporter, f"baseline: {problem}", red=True)
    _show_problems(terminalreporter, run)


def _say(terminalreporter: Any, text: str, **markup: bool) -> None:
    """Write a line in which names chosen by plugins can neither control the terminal nor be commands to a CI system."""
    terminalreporter.write_line(obeyed_by_none(text), **markup)


def _show_readings(terminalreporter: Any, run: Run) -> None:
    """Show the readings that judged items, and those that were not used."""
    from quantizer.core.readings import READINGS

    for reading in run.readings:
        _say(terminalreporter, f"reading: {reading} ({READINGS[reading.rpartition(':')[2]]})")
    for reading in run.unread:
        _say(terminalreporter, f"not used: reading {reading}: no item of the run is judged by it.", yellow=True)


def _show_functions(terminalreporter: Any, run: Run) -> None:
    """Name every function of a plugin that no item judged."""
    from quantizer.conformance.run.plugin_coverage import line
    from quantizer.ops import REGISTRY

    ran = set(run.specs)
    replacing = {entry.op for entry in REGISTRY.replacements()}
    for text in filter(None, (line(one, ran, replacing) for one in run.functions)):
        _say(terminalreporter, text, yellow=True)


def _without_enclosure(run: Run) -> list[str]:
    """Return a line for each operator whose accuracy is not judged: it has a custom error model without stages."""
    from quantizer.core.record import read_records
    from quantizer.core.verdict import UNJUDGED

    records = read_records([*run.records.values()], "run")
    ops = {r.op for r in records if (check := r.checks.get("accuracy")) is not None and UNJUDGED in check.reasons}
    return [f"not judged: accuracy of {op}: {UNJUDGED}." for op in sorted(ops)]


def _show_problems(terminalreporter: Any, run: Run) -> None:
    for problem in run.lacks:
        _say(terminalreporter, f"not whole: {problem}", red=True)
    if run.unwritten:
        _say(terminalreporter, f"the run's records are not written: {run.unwritten}", red=True)
