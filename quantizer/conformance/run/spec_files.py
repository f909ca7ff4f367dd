"""Collects items from each YAML file that has a top-level `op:` or `graph:` key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from quantizer.conformance.run.command_line import opened, options
from quantizer.conformance.run.folder_lock import lock_run_folder
from quantizer.conformance.run.shipped import place
from quantizer.conformance.run.stash_keys import EXTRA, MADE, STATE
from quantizer.core.files import is_file

if TYPE_CHECKING:
    from quantizer.conformance.run.collection import ItemState

F = TypeVar("F", bound=pytest.File)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file that has a top-level `op:` or `graph:` key."""
    first = first_key(file_path) if file_path.suffix == ".yaml" else None
    if first is None:
        return None
    return spec_file(parent, file_path) if first == "op" else _file(GraphFile, parent, file_path)


def shipped_file(parent: pytest.Collector, path: Path, platforms: set[str] | None) -> pytest.Collector:
    """Return the collector of a requested shipped spec or graph; *platforms*: those with cases, None for all."""
    if first_key(path) == "graph":
        return _file(GraphFile, parent, path)
    collector = spec_file(parent, path)
    collector.shipped, collector.platforms = True, platforms
    return collector


def spec_file(parent: pytest.Collector, path: Path) -> SpecFile:
    """Return the collector of a spec file."""
    return _file(SpecFile, parent, path)


def _file(kind: type[F], parent: pytest.Collector, path: Path) -> F:
    root = parent.config.rootpath
    named: dict[str, Any] = {} if path.is_relative_to(root) else {"nodeid": place(path, root)}
    collector: F = kind.from_parent(parent, path=path, **named)
    return collector


def first_key(path: Path) -> str | None:
    """Return which of the two keys a file has; None if it is no file of ours."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            # a cheap test: every YAML file of a repository is asked, and the key stands near the top
            lines = stream.read(4096).splitlines()
    except OSError:
        return None
    return next((key for line in lines for key in ("op", "graph") if line.startswith(f"{key}:")), None)


class GraphFile(pytest.File):
    """One graph of a few nodes: an item for each platform."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the items in a stable order; a graph that cannot be read is a collection error with its places."""
        from quantizer.conformance.run.graph_items import collect_graph

        for made in _made(self, lambda: collect_graph(self.path, self.nodeid, options(self.config))):
            self.config.stash[MADE].add(made.name)
            yield made


class SpecFile(pytest.File):
    """One spec: an item for each scheme x platform, and one each for spec, golden, reject and regressions."""

    platforms: set[str] | None = None
    """For a shipped spec: the platforms for which cases are requested, in addition to regressions; None: every item."""
    shipped: bool = False
    """Whether `--op-shipped` requested it."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the items in a stable order; a spec that cannot be read is a collection error with its places."""
        from quantizer.conformance.run.collection import collect

        config = self.config
        for made in _made(
            self, lambda: collect(self.path, self.nodeid, options(config), lambda: opened(config), config.stash[EXTRA])
        ):
            state = made.stash[STATE]
            wanted = self.platforms is None or state.kind == "regressions" or state.platform in self.platforms
            if wanted and not (self.shipped and _is_judged_where_shipped(state)):
                config.stash[MADE].add(made.name)
                yield made


def _made(parent: pytest.File, collected: Callable[[], Iterable[ItemState]]) -> Iterator[pytest.Item]:
    """Yield an item for each state; a file that cannot be read is an error of its collector."""
    from quantizer.conformance.run.collection import item
    from quantizer.core.errors import QuantizerError, UnsupportedError

    lock_run_folder(parent.config)
    try:
        found = [*collected()]
    except UnsupportedError as err:
        raise pytest.UsageError(str(err)) from None
    except QuantizerError as err:
        raise parent.CollectError(str(err)) from None
    for state in found:
        made = item(parent, state)
        made.stash[STATE] = state
        yield made


def _is_judged_where_shipped(state: ItemState) -> bool:
    """Return whether the item has nothing to compare: the spec item, or goldens that do not exist."""
    if state.kind != "golden":
        return state.kind == "spec"
    from quantizer.conformance.stored.folders import GOLDEN

    return state.options.golden_update is None and not is_file(state.options.cases / GOLDEN / f"{state.op}.jsonl")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each conformance item its own Hypothesis key and random stream, which all items would share otherwise."""
    if STATE in item.stash or isinstance(item.parent, SpecFile | GraphFile):
        item.add_marker(pytest.mark.parametrize("spec_item", []))
