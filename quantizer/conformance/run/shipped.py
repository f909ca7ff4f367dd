"""Runs shipped specs in another repository, to judge its plugin, engine or platform."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from quantizer.conformance.run.command_line import options
from quantizer.conformance.run.stash_keys import EXTRA
from quantizer.core.files import is_file
from quantizer.core.wording import shown_path

KEY = "op_shipped"
Collecting = Callable[[pytest.Session, Path, set[str] | None], pytest.Collector]
"""Makes the collector of a spec file, for the items of some platforms or of all."""


def place(path: Path, root: Path) -> str:
    """Return the node id of a file outside *root*, as a command that runs in *root* names it."""
    return Path(os.path.relpath(path, root)).as_posix()


def _replaced_on(op: str) -> set[str] | None:
    """Return the platforms where a plugin replaces a function of *op*; None for all, or if not known yet."""
    from quantizer.ops import REGISTRY

    found = {entry.platform for entry in REGISTRY.replacements() if entry.op == op}
    return {name for name in found if name is not None} if found and None not in found else None


class ShippedSpecs:
    """Adds the items of shipped specs to a run."""

    def __init__(self, config: pytest.Config, collector: Collecting) -> None:
        self._config = config
        self._collector = collector

    def names(self) -> list[str]:
        """Return the requested operators. Those of the ini file count only if the command line names no path."""
        worker = getattr(self._config, "workerinput", None)
        if worker is not None:
            return [*worker[KEY]]
        given: list[str] | None = self._config.getoption(KEY)
        if given is not None:
            return given
        named = self._config.args_source is pytest.Config.ArgsSource.ARGS
        return [] if named else [*self._config.getini(KEY)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist the original selection, because it gets every path as if it were named."""
        node.workerinput[KEY] = self.names()

    def pytest_sessionstart(self) -> None:
        """Reject a name that is not a shipped operator or graph before anything is collected."""
        self._paths()

    def _paths(self) -> list[Path]:
        if not (names := self.names()):
            return []
        from quantizer.core.graph_spec import shipped_graphs_folder
        from quantizer.core.library import load_library, near_operator, shipped_folder

        known = {path.stem: path for path in shipped_graphs_folder().glob("*.yaml")}
        known |= {path.stem: path for path in shipped_folder().glob("*.yaml") if path.stem != "schemes"}
        extra: list[Path] = self._config.stash[EXTRA]
        for name in names:
            if name not in known:
                specs = {op: spec for op, spec in load_library().specs.items() if op in known}
                said = _of_package(name, extra) or f"no such operator.{near_operator(name, specs)}"
                raise pytest.UsageError(f"--op-shipped={name}: {said}")
        return [known[name] for name in dict.fromkeys(names)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items of the requested shipped specs that the command line does not name.

        Where a plugin replaces functions on some platforms, only cases of these platforms are added, unless the run
        names an engine or platforms. The spec item and shipped goldens are judged where they are shipped. Goldens that
        the run stores itself are judged here.
        """
        asked = options(self._config)
        names_what_runs = asked.real is not None or bool(asked.platforms)
        there = {path.resolve() for path in {item.path for item in items}}
        for path in self._paths():
            if path.resolve() not in there:
                only = None if names_what_runs else _replaced_on(path.stem)
                items += session.genitems(self._collector(session, path, only))


def _of_package(name: str, folders: Sequence[Path]) -> str:
    """Return a hint how to judge an operator whose spec is in *folders* of plugins; empty if none of them has it."""
    found = next((path for folder in folders if is_file(path := folder / f"{name}.yaml")), None)
    return "" if found is None else f"an installed package has it, it is not shipped. Write pytest {shown_path(found)}."
