"""What the process that writes files collects while items finish, and what the command line left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quantizer.conformance.options import Options
    from quantizer.core.facts import Facts, SpecFacts
    from quantizer.plugins.discovery import Plugin


class Run:
    """Records, seconds and specs of the items that finished."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}
        """Of each item the last: a plugin of pytest's may run one again."""
        self.seconds: dict[str, float] = {}
        self.deselected = False
        self.replaced: set[str] = set()
        self.changes: list[str] = []
        self.problems: list[str] = []
        self.readings: list[str] = []
        """Readings that judged items of the run."""
        self.unwritten = ""
        """Why the run's records could not be written."""
        self.specs: dict[str, SpecFacts] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record that came with a report."""
        text = getattr(report, "op_record", None)
        if text is not None:
            self.records[report.nodeid] = text
            self.seconds[report.nodeid.rsplit("::", 1)[-1]] = report.duration
            self.replaced.update(getattr(report, "op_replaced", ()))
            self.changes += getattr(report, "op_changes", ())
            self._keep_spec(*report.op_spec)

    def _keep_spec(self, op: str, facts: dict[str, Any]) -> None:
        from quantizer.core.facts import SpecFacts

        if op not in self.specs:
            self.specs[op] = SpecFacts.model_validate(facts)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember that the run is a part of all items."""
        self.deselected |= bool(items)

    def facts(self, config: pytest.Config, asked: Options, extra: list[Path], plugins: list[Plugin]) -> Facts:
        """Return what the run says of itself."""
        from quantizer.conformance.run_facts import run_facts

        seed = str(config.getoption("hypothesis_seed", None))
        return run_facts(
            asked, asked.library(extra), plugins, self.specs,
            seed=int(seed) if seed.isdecimal() else None, selection=(*selection(config), *asked.narrowings),
        )  # fmt: skip


def selection(config: pytest.Config) -> list[str]:
    """Return the keyword, marker, files and items that the command line names: what else is missing was not asked for.

    Under xdist the process that writes files is told of no item that was deselected.
    """
    words = [f"-k {config.getoption('keyword')}"] if config.getoption("keyword") else []
    words += [f"-m {config.getoption('markexpr')}"] if config.getoption("markexpr") else []
    named = [str(arg) for arg in config.args if not str(arg).startswith("-")]
    return words + [arg for arg in named if (config.invocation_params.dir / arg.split("::")[0]).is_file()]
