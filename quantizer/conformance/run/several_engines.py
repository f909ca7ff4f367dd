"""Several engines in one call of pytest: a session for each in turn, then the differences from the first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from quantizer.conformance.run.command_line import SEVERAL, flag, value

_STOPPED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
_LONGEST = 60


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run a session for each of several engines, then write the differences; None if there is only one engine."""
    named = [f"{flag(name)}={text}" for name in SEVERAL for text in config.getoption(name) or ()]
    if len(named) < 2 or config.getoption("collectonly"):
        return None
    if all(config.getoption(name) for name in SEVERAL):
        raise pytest.UsageError("--op-engine and --op-engine-command: each names the engine under test. Remove one.")
    given = [str(word) for word in config.invocation_params.args]
    rest = [*without(given, [*map(flag, SEVERAL), "--op-report"])]
    # engines that come from an ini file or from `addopts` cannot be taken out of the arguments
    if len(named) != len([*engines_of(given)]):
        raise pytest.UsageError(f"{named[-1]}: name several engines on the command line itself.")
    folder = config.rootpath / value(config, "op_report")
    runs = {engine: folder / f"{place}-{_file_name(engine)}" for place, engine in enumerate(named, 1)}
    try:
        status = _run_each(config, runs, rest)
    except KeyboardInterrupt:
        return pytest.ExitCode.INTERRUPTED
    return status if status in _STOPPED else _compared(list(runs.values()), status)


def engines_of(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line that name an engine."""
    yield from (word for word in _options(words) if word.partition("=")[0] in [*map(flag, SEVERAL)])


def without(words: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line without the options *names* and their values."""
    skipped = False
    options = len([*_options(words)])
    for place, word in enumerate(words):
        name, is_whole, _ = word.partition("=")
        if skipped:
            skipped = False
        elif place < options and name in names:
            # "--option value": the next word is its value
            skipped = not is_whole
        else:
            yield word


def _options(words: Sequence[str]) -> Iterator[str]:
    """Yield the words before `--`; only files come after it."""
    for word in words:
        if word == "--":
            return
        yield word


def _file_name(engine: str) -> str:
    """Return the engine's name, or the last word of its command, as a folder name."""
    last = re.split(r"[/\\\s]", engine.partition("=")[2].strip())[-1]
    return re.sub(r"[^\w.@-]+", "_", last)[-_LONGEST:].strip("_.")


def _run_each(config: pytest.Config, runs: dict[str, Path], rest: Sequence[str]) -> int:
    """Run a session of each engine and return the first exit status that is not 0. Stop at one that cannot run."""
    python = [sys.executable, *(() if _reads_folder(config) else ("-P",)), "-m", "pytest"]
    status = 0
    for engine, folder in runs.items():
        sys.stdout.write(f"\nquantizer: {engine}, records in {_shown(folder)}\n")
        sys.stdout.flush()
        words = [*python, engine, f"--op-report={folder}", *rest]
        ended = subprocess.run(words, cwd=config.invocation_params.dir, check=False).returncode  # noqa: S603 - pytest
        # below 0: ended by a signal
        if ended in _STOPPED or ended < 0:
            return ended if ended > 0 else pytest.ExitCode.INTERNAL_ERROR
        status = status or ended
    return status


def _reads_folder(config: pytest.Config) -> bool:
    """Return whether modules in the current folder can be imported, as with `python -m pytest`."""
    return any(path in ("", str(config.invocation_params.dir)) for path in sys.path[:1])


def _compared(folders: Sequence[Path], status: int) -> int:
    """Write the differences of each other run from the first, and the command that shows them again."""
    from quantizer.core.errors import QuantizerError
    from quantizer.reporting.complete_run import read_either
    from quantizer.reporting.diff import compare
    from quantizer.reporting.diff_views import render
    from quantizer.reporting.machine import paired

    first = folders[0]
    for other in folders[1:]:
        try:
            pair = paired(first, read_either(first)[0], other, read_either(other)[0])
        except QuantizerError as err:
            sys.stdout.write(f"\nquantizer: nothing to compare: {err}\n")
            return status or pytest.ExitCode.NO_TESTS_COLLECTED
        diff = compare(pair.base, pair.run, elsewhere=pair.elsewhere)
        sys.stdout.write(f"\nquantizer report diff {_shown(first)} {_shown(other)}\n\n{render(diff, 'terminal')}")
    return status


def _shown(folder: Path) -> str:
    return os.path.relpath(folder)
