"""The pytest plugin: spec files become items. Imports neither torch nor hypothesis when it is registered."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quantizer.conformance.collection import State
    from quantizer.conformance.options import Options
    from quantizer.conformance.session import Session

LISTS = {
    "op_specs": "file or folder of operator specs beside the shipped ones",
    "op_plugins": "file or folder of operator plugins",
    "op_platform": "run only this platform",
    "op_scheme": "run only this scheme",
    "op_check": "run only this check",
}
SINGLES = {
    "op_engine": ("own", "engine under test"),
    "op_profile": ("gate", "gate, dev or nightly"),
    "op_report": ("reports/out", "folder for records, summary and failures"),
    "op_baseline": ("", "records file that the run must not fall behind"),
    "op_xfails": ("", "YAML file of known failures, each with reason, owner, expiry and a stored case"),
    "op_cases": ("cases", "folder of golden, regressions and defects"),
}
OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
SESSION: pytest.StashKey[Session] = pytest.StashKey()
STATE: pytest.StashKey[State] = pytest.StashKey()
EXTRA: pytest.StashKey[list[Path]] = pytest.StashKey()
RUN: pytest.StashKey[_Run] = pytest.StashKey()


class _Run:
    """What the process that writes files collects while items finish."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.seconds: dict[str, float] = {}
        self.deselected = False
        self.replaced: set[str] = set()
        self.problems: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record that came with a report."""
        text = getattr(report, "op_record", None)
        if text is not None:
            self.records.append(text)
            self.seconds[report.nodeid.rsplit("::", 1)[-1]] = report.duration
            self.replaced.update(getattr(report, "op_replaced", ()))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember that the run is a part of all items."""
        self.deselected |= bool(items)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add one group of options, all of them `--op-...`, with ini keys of the same names."""
    group = parser.getgroup("quantizer", "conformance of quantized operators")
    for name, text in LISTS.items():
        group.addoption(_flag(name), action="append", metavar=_meta(name), help=f"{text} (repeatable)")
        parser.addini(name, text, type="linelist", default=[])
    for name, (default, text) in SINGLES.items():
        group.addoption(_flag(name), metavar=_meta(name), help=f"{text} (default: {default or 'none'})")
        parser.addini(name, text, default=default)
    group.addoption("--op-golden-update", metavar="REASON", help="write the goldens of the selected operators anew")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _meta(name: str) -> str:
    return name.removeprefix("op_").upper()


def _value(config: pytest.Config, name: str) -> Any:
    given = config.getoption(name)
    return config.getini(name) if given is None else given


def pytest_configure(config: pytest.Config) -> None:
    """Register markers, and start collecting records on the process that writes files."""
    for marker in ("op(name)", "scheme(name)", "platform(name)"):
        config.addinivalue_line("markers", f"{marker}: set by quantizer on every item of an operator")
    config.stash[EXTRA] = []
    if not hasattr(config, "workerinput"):
        config.stash[RUN] = _Run()
        config.pluginmanager.register(config.stash[RUN], "quantizer-run")


def options(config: pytest.Config) -> Options:
    """Return what was asked for; a wrong value is a usage error that names the legal ones."""
    if OPTIONS not in config.stash:
        config.stash[OPTIONS] = _with_usage_errors(lambda: _read_options(config))
    return config.stash[OPTIONS]


def _read_options(config: pytest.Config) -> Options:
    from quantizer.conformance.options import Options
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.verdict import CHECKS

    here, root = config.invocation_params.dir, config.rootpath

    def paths(name: str) -> tuple[Path, ...]:
        base = here if config.getoption(name) else root
        return tuple((base / item).resolve() for item in _value(config, name))

    update = config.getoption("op_golden_update")
    if update is not None and not update.strip():
        raise UnsupportedError(
            "--op-golden-update: say why the codes change, as in --op-golden-update 'first goldens'."
        )
    if update is not None and os.environ.get("CI"):
        raise UnsupportedError("--op-golden-update: goldens are never written under CI. Update them at your desk.")
    if _value(config, "op_profile") == "gate" and config.getoption("hypothesis_seed", None) is not None:
        raise UnsupportedError("--hypothesis-seed: the gate profile has no seed. Add --op-profile nightly.")

    def file(name: str) -> Path | None:
        base, given = here if config.getoption(name) else root, _value(config, name)
        return base / given if given else None

    return Options(
        root=root, specs=paths("op_specs"), plugins=paths("op_plugins"), engine=_value(config, "op_engine"),
        platforms=tuple(_value(config, "op_platform")), schemes=tuple(_value(config, "op_scheme")),
        checks=tuple(_value(config, "op_check")) or CHECKS, profile=_value(config, "op_profile"),
        reports=root / _value(config, "op_report"), cases=root / _value(config, "op_cases"),
        baseline=file("op_baseline"), xfails=file("op_xfails"), golden_update=update,
    )  # fmt: skip


def _with_usage_errors(function: Any) -> Any:
    from quantizer.core.errors import QuantizerError

    try:
        return function()
    except QuantizerError as err:
        raise pytest.UsageError(str(err)) from None


def opened(config: pytest.Config) -> Session:
    """Return the run under way; opened when the first item runs, or when goldens need it."""
    if SESSION not in config.stash:
        from quantizer.conformance.session import open_session

        gc.collect()
        gc.freeze()  # what is loaded so far lives as long as the run: later collections need not walk it
        asked, extra = options(config), (*config.stash[EXTRA],)
        config.stash[SESSION] = _with_usage_errors(lambda: open_session(asked, extra))
    return config.stash[SESSION]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Read the options and load plugins before anything is collected: a broken one ends the run."""
    from quantizer.plugins.discovery import load_plugins, sources

    asked = options(session.config)
    if asked.baseline is not None and not asked.baseline.exists():
        raise pytest.UsageError(f"--op-baseline: {asked.baseline} does not exist. Copy a run's records.jsonl there.")
    environment = dict(os.environ)
    if _with_usage_errors(lambda: sources(asked.plugins, environment)):
        plugins = _with_usage_errors(lambda: load_plugins(asked.plugins, environment))
        session.config.stash[EXTRA] += [folder for plugin in plugins for folder in plugin.specs]
    if asked.platforms or asked.schemes:
        extra: list[Path] = session.config.stash[EXTRA]
        _with_usage_errors(lambda: asked.library(extra))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Read known failures once every spec is known: what names none of them, or has expired, ends the run."""
    asked = options(session.config)
    extra: list[Path] = session.config.stash[EXTRA]
    if asked.xfails is not None:
        _with_usage_errors(lambda: asked.with_xfails(asked.library(extra)))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file that has a top-level `op:` key."""
    if file_path.suffix != ".yaml" or not _is_spec(file_path):
        return None
    collector: SpecFile = SpecFile.from_parent(parent, path=file_path)
    return collector


def _is_spec(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return any(line.startswith("op:") for line in stream.read(4096).splitlines())
    except OSError:
        return False


class SpecFile(pytest.File):
    """One spec: an item for each scheme x platform, and one each for spec, golden, reject and regressions."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the items in a stable order; a spec that cannot be read is a collection error with its places."""
        from quantizer.conformance.collection import collect, item
        from quantizer.core.errors import QuantizerError, UnsupportedError

        config = self.config
        try:
            found = [*collect(self.path, self.nodeid, options(config), lambda: opened(config), config.stash[EXTRA])]
        except UnsupportedError as err:
            raise pytest.UsageError(str(err)) from None
        except QuantizerError as err:
            raise self.CollectError(str(err)) from None
        for state in found:
            made = item(self, state)
            made.stash[STATE] = state
            yield made


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each item of ours its own Hypothesis key and random stream: without it all items share one."""
    if STATE in item.stash or isinstance(item.parent, SpecFile):
        item.add_marker(pytest.mark.parametrize("spec_item", []))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Hand the item's record to the report, which crosses process borders; and its figures to JUnit."""
    if call.when != "call" or STATE not in item.stash:
        return (yield)
    failed = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
    record = item.stash[STATE].record("failed" if failed else "skipped" if call.excinfo else "passed")
    figures = {"op": record.op, "scheme": record.scheme, "platform": record.platform, "cases": record.cases}
    item.user_properties += [(name, value) for name, value in figures.items() if value]
    if record.checks:
        worst = max(check.ratio for check in record.checks.values())
        item.user_properties.append(("ratio", f"{worst:.6g}"))
    report = yield
    report.op_record = record.to_json()
    report.op_replaced = item.stash[STATE].replaced()
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the run's records and compare them with the baseline, on the process that writes files."""
    config = session.config
    run = config.stash.get(RUN, None)
    if run is None or not run.records:
        return
    from quantizer.conformance.closing import close_run

    run.problems = close_run(run.records, run.seconds, options(config), filtered=run.deselected or _named_items(config))
    if run.problems and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _named_items(config: pytest.Config) -> bool:
    """True when the command line names files or items: then what is missing was not asked for."""
    return any(
        not str(arg).startswith("-") and (config.rootpath / str(arg).split("::")[0]).is_file() for arg in config.args
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the worst items, totals, holes, and what the baseline holds against the run."""
    run = config.stash.get(RUN, None)
    if run is None or not run.records:
        return
    from quantizer.core.record import read_records
    from quantizer.reporting.terminal import render

    if config.get_verbosity() >= 0:
        records = [*read_records(run.records, "run")]
        where = options(config).shown(options(config).reports / "records.jsonl")
        terminalreporter.section("operators")
        for line in render(records, width=terminalreporter._tw.fullwidth, path=where):
            terminalreporter.write_line(line)
    for entry in sorted(run.replaced):
        terminalreporter.write_line(f"replaced: {entry}")
    for problem in run.problems:
        terminalreporter.write_line(f"baseline: {problem}", red=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what decides the numbers of this run."""
    asked = options(config)
    return [f"quantizer: profile {asked.profile}, engine {asked.engine}"]
