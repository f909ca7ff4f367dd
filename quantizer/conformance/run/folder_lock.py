"""Locks the folder of a run in the process that writes files."""

from __future__ import annotations

import contextlib

import pytest

from quantizer.conformance.run.command_line import options, with_usage_errors
from quantizer.conformance.run.stash_keys import RUN


def lock_run_folder(config: pytest.Config) -> None:
    """Lock the folder of the run in the process that writes files. From now on, no older run in it is valid."""
    from quantizer.reporting.folder import RunFolder

    run = config.stash.get(RUN, None)
    if run is None or run.folder is not None or config.getoption("collectonly"):
        return
    folder = RunFolder(options(config).reports)
    with_usage_errors(folder.claim)
    run.folder = folder


def try_to_lock_run_folder(config: pytest.Config) -> None:
    """Lock the folder before plugins run, if it is free, although the session may turn out to have no items."""
    with contextlib.suppress(pytest.UsageError):
        lock_run_folder(config)
