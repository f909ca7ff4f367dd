"""What all tests share: programs that start without imports, and a progress line on the terminal."""

import gc
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `from warmed import Warmed`

from progress import KNOWN, Progress  # noqa: E402
from warmed import Warmed  # noqa: E402

PROGRESS: pytest.StashKey[Progress] = pytest.StashKey()


@pytest.fixture(scope="session")
def warmed() -> Iterator[Warmed]:
    """Start programs as children of one process that has already imported what they need."""
    parent = Warmed()
    yield parent
    parent.close()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report progress on a terminal; pytest's own dots are enough for a log."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or terminal is None or not terminal.isatty:
        return

    def say(line: str) -> None:
        terminal.ensure_newline()
        terminal.write_line(line, red=line.startswith("FAILED"))

    cache = getattr(config, "cache", None)
    known = cache.get(KNOWN, {}) if cache is not None else {}
    config.stash[PROGRESS] = Progress(say, known)
    config.pluginmanager.register(config.stash[PROGRESS], "progress")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and exclude the collected items from its later passes.

    They live as long as the session, and each pass would walk all of them, some 700,000 objects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Keep how long the tests of each file took, for the next estimate."""
    cache, progress = getattr(config, "cache", None), config.stash.get(PROGRESS, None)
    if cache is not None and progress is not None:
        cache.set(KNOWN, cache.get(KNOWN, {}) | progress.means())
