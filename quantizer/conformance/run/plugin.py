"""The pytest plugin, which makes items of spec files. It imports neither torch nor hypothesis when registered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from quantizer.conformance.run.command_line import (
    named,
    options,
    pytest_addoption,
    pytest_load_initial_conftests,
    with_usage_errors,
)
from quantizer.conformance.run.folder_lock import lock_run_folder
from quantizer.conformance.run.item_reports import pytest_runtest_makereport
from quantizer.conformance.run.session_end import pytest_sessionfinish, pytest_terminal_summary, selects_nothing
from quantizer.conformance.run.several_engines import pytest_cmdline_main
from quantizer.conformance.run.shipped import ShippedSpecs
from quantizer.conformance.run.spec_files import pytest_collect_file, pytest_itemcollected, shipped_file
from quantizer.conformance.run.stash_keys import EXTRA, MADE, PLUGINS, RUN, STATE
from quantizer.conformance.run.state import Run
from quantizer.conformance.run.under_test import launch_early, load, require_same_inputs
from quantizer.core.files import exists

__all__ = [
    "pytest_addoption",
    "pytest_cmdline_main",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
    "pytest_load_initial_conftests",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "pytest_terminal_summary",
]


def pytest_configure(config: pytest.Config) -> None:
    """Register markers, and start collecting records on the process that writes files."""
    for marker in ("op(name)", "scheme(name)", "platform(name)"):
        config.addinivalue_line("markers", f"{marker}: set by quantizer on every item of an operator")
    config.stash[EXTRA] = []
    config.stash[PLUGINS] = []
    config.stash[MADE] = set()
    config.pluginmanager.register(ShippedSpecs(config, shipped_file), "quantizer-shipped")
    # not a worker of xdist
    if not hasattr(config, "workerinput"):
        config.stash[RUN] = Run()
        config.pluginmanager.register(config.stash[RUN], "quantizer-run")
    launch_early(config)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Read the options and load plugins before anything is collected: a broken one ends the run."""
    config = session.config
    asked = options(config)
    # read here only for its errors, so that they come before the first item and not after the last
    with_usage_errors(lambda: asked.thresholds)
    if asked.baseline is not None and not exists(asked.baseline):
        raise pytest.UsageError(f"--op-baseline: {asked.baseline} does not exist. Copy a run's records.jsonl there.")
    with_usage_errors(asked.check_named)
    require_same_inputs(config, "the engine was started. An engine")
    # a session without any of our options may have no item, and then must not touch an earlier run
    if named(config):
        lock_run_folder(config)
    load(config)
    if asked.platforms or asked.schemes:
        extra: list[Path] = config.stash[EXTRA]
        with_usage_errors(lambda: asked.library(extra))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the items of other shards."""
    shard = options(config).shard
    if shard is None:
        return
    # an item of an operator by its name, which is the same in every checkout; other tests by their node ids
    left = [item for item in items if not shard.holds(item.name if STATE in item.stash else item.nodeid)]
    if left:
        away = set(left)
        items[:] = [item for item in items if item not in away]
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Read known failures once every spec is known: an entry that names no item, or that has expired, ends the run."""
    if sys.exc_info()[0] is not None:
        return  # an interrupted collection ends here too; torch may be half imported, and must not be imported again
    asked = options(session.config)
    extra: list[Path] = session.config.stash[EXTRA]
    if asked.xfails is not None:
        with_usage_errors(lambda: asked.with_xfails(asked.library(extra)))
    run = session.config.stash.get(RUN, None)
    if run is not None:
        run.expect({item.nodeid: item.stash[STATE] for item in session.items if STATE in item.stash})
        if problem := selects_nothing(session.config, run):
            raise pytest.UsageError(problem)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the header lines with the facts that decide the results of this run."""
    from quantizer.core.levels import label
    from quantizer.core.wording import obeyed_by_none

    asked = options(config)
    version = f" {asked.real.version or '(not installed)'}" if asked.real else ""
    levels = f", instructions {', '.join(map(label, asked.levels))}" if asked.real else ""
    lines = [f"quantizer: profile {asked.profile}, engine {asked.under_test}{version}{levels}"]
    if asked.in_process:
        lines.append(
            "quantizer: functions of plugins run in this process (--op-in-process): no statement is made of it"
        )
    lines += [f"quantizer: reading {reading}" for reading in asked.readings]
    return [obeyed_by_none(line) for line in lines]
