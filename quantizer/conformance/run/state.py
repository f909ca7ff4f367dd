"""The state of a run, in the process that writes files: records of finished items, and what else is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quantizer.conformance.run.collection import ItemState
    from quantizer.conformance.setup.options import Options
    from quantizer.core.facts import Facts, FunctionFacts, SpecFacts
    from quantizer.plugins.discovery import Plugin
    from quantizer.reporting.folder import RunFolder

ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit codes of a session that was not interrupted."""


class Run:
    """Records, seconds and specs of finished items, and the names of all items."""

    def __init__(self) -> None:
        self.folder: RunFolder | None = None
        """The folder of the run; None until there is anything to write."""
        self.items: dict[str, ItemState | None] = {}
        """Node id -> state of each collected, not deselected conformance item; None if a worker of xdist has it."""
        self.made: set[str] = set()
        """Names of all items of the specs, before any selection."""
        self.records: dict[str, str] = {}
        """Item id -> its last record, since a plugin of pytest may run an item again."""
        self.seconds: dict[str, float] = {}
        self.deselected = False
        self.replaced: set[str] = set()
        self.changes: list[str] = []
        self.problems: list[str] = []
        self.readings: list[str] = []
        """Readings that judged items of the run."""
        self.unread: list[str] = []
        """Requested readings that judged no item."""
        self.lacks: list[str] = []
        """Why the run is not whole."""
        self.unwritten = ""
        """Why the run's records could not be written."""
        self.specs: dict[str, SpecFacts] = {}
        self.functions: list[FunctionFacts] = []
        self.uncollected: list[str] = []
        self.crashed: dict[str, str] = {}
        """Item that crashed its worker -> the message of xdist."""
        self.left = 0
        """The number of processes that plugins or an engine started and did not end."""
        self._unkept = False
        """Whether a record could not be written when its item ended."""
        self._judging: set[str] = set()
        """Workers of xdist whose items judged values."""
        self._sung: dict[str, tuple[int, str]] = {}
        """Worker (empty without xdist) -> the result of its canary: the number of faults and a message."""
        self._dead: set[str] = set()
        self._known: dict[str, list[str]] = {}
        """Worker (empty: the process that writes files) -> the plugin functions and the engine that it knows."""

    def expect(self, items: dict[str, ItemState | None]) -> None:
        """Remember the items that this session will run."""
        self.items.update(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Remember the items that the workers of xdist collected; all workers collect the same."""
        # a worker sends names only
        self.expect({name: None for name in ids if ".yaml::" in name and name not in self.items})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember collection errors: with --continue-on-collection-errors the other items still run."""
        if report.failed:
            self.uncollected.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record that came with a report."""
        text = getattr(report, "op_record", None)
        if text is not None:
            self.records[report.nodeid] = text
            # setup and teardown also bring a record if they fail, but no time of the item
            if report.when == "call":
                self.seconds[report.nodeid.rsplit("::", 1)[-1]] = report.duration
            self.replaced.update(getattr(report, "op_replaced", ()))
            self.changes += getattr(report, "op_changes", ())
            self._keep_spec(*report.op_spec)
            self._note(text)
            if report.passed and "-" in report.nodeid and getattr(report, "op_witnessed", False):
                self._judging.add(_worker(report))

    def _note(self, text: str) -> None:
        """Also write a record into the run's folder. If this fails once, the run goes on but is not whole."""
        from quantizer.core.errors import QuantizerError

        if self.folder is None or self._unkept:
            return
        try:
            self.folder.note(text)
        except QuantizerError as err:
            self._unkept = True
            self.lacks.append(str(err))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Remember the item that ended its worker, and the worker."""
        self.crashed[crashitem] = (str(report.longrepr).splitlines() or [""])[0].strip()
        self._dead.add(_worker(report))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the canary's result from a worker of xdist."""
        said = getattr(node, "workeroutput", {}).get("op_canary")
        if said is not None:
            self.sung(node.gateway.id, tuple(said))
        self.left += int(getattr(node, "workeroutput", {}).get("op_left", 0))
        self.made.update(getattr(node, "workeroutput", {}).get("op_made", ()))
        if (known := getattr(node, "workeroutput", {}).get("op_functions")) is not None:
            self.has_functions(node.gateway.id, known)

    def spec_files(self) -> list[str]:
        """Return the spec files of the items, from the root of the run."""
        return [*dict.fromkeys(name.partition("::")[0] for name in self.items)]

    def has_functions(self, worker: str, known: list[str]) -> None:
        """Record the plugin functions that a process has registered. All processes must have registered the same."""
        self._known[worker] = known

    def strangers(self) -> list[str]:
        """Return a line for each process whose plugins or engine differ from those of the writing process."""
        mine = set(self._known.get("", ()))
        odd = [(name, sorted(mine.symmetric_difference(known))) for name, known in sorted(self._known.items())]
        return [f"worker {name} has {_other(lines[0])}." for name, lines in odd if lines]

    def sung(self, worker: str, said: tuple[int, str]) -> None:
        """Remember the canary's result in a process."""
        self._sung[worker] = said

    def damage(self, status: int) -> list[str]:
        """Return why the verdicts cannot be trusted: a planted fault that passed, or a worker without a result.

        status: pytest's. No canary is required in an interrupted session.
        """
        found = sorted({problem for _, problem in self._sung.values() if problem})
        silent = sorted(self._judging - self._sung.keys() - self._dead) if status in ENDED else []
        return found + [f"worker {name} judged, and ended before it showed that its judge is whole." for name in silent]

    def _keep_spec(self, op: str, facts: dict[str, Any]) -> None:
        from quantizer.core.facts import SpecFacts

        if op not in self.specs:
            self.specs[op] = SpecFacts.model_validate(facts)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember that the run is a part of all items."""
        self.deselected |= bool(items)

    def facts(self, config: pytest.Config, asked: Options, extra: list[Path], plugins: list[Plugin]) -> Facts:
        """Return run.json's content as far as it is known before the end of the run."""
        from quantizer.conformance.run.facts import run_facts

        seed = str(config.getoption("hypothesis_seed", None))
        return run_facts(
            asked,
            asked.library(extra),
            plugins,
            self.specs,
            seed=int(seed) if seed.isdecimal() else None,
            selection=(*selection(config), *asked.narrowings),
        )


def _other(line: str) -> str:
    """Return the entries of *registered* lines that some processes have and others lack."""
    return f"another {line}" if line.startswith("engine ") else f"other functions of plugins, such as {line}"


def _worker(report: Any) -> str:
    """Return the worker of xdist that a report comes from; empty without xdist."""
    node = getattr(report, "node", None)
    return "" if node is None else str(node.gateway.id)


def selection(config: pytest.Config) -> list[str]:
    """Return the keyword, marker, files and items on the command line, which explain why other items are missing.

    They are read because, under xdist, the process that writes files gets no report of deselected items.
    """
    words = [f"-k {config.getoption('keyword')}"] if config.getoption("keyword") else []
    words += [f"-m {config.getoption('markexpr')}"] if config.getoption("markexpr") else []
    for option in ("deselect", "ignore", "ignore_glob"):
        words += [f"--{option.replace('_', '-')}={text}" for text in config.getoption(option, None) or ()]
    named = [str(arg) for arg in config.args if not str(arg).startswith("-")]
    return words + [arg for arg in named if (config.invocation_params.dir / arg.split("::")[0]).is_file()]
