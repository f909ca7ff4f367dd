"""The pytest plugin: spec files become items. Imports neither torch nor hypothesis when it is registered."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quantizer.conformance.shipped import ShippedSpecs, place
from quantizer.conformance.under_way import ENDED, Run, selection
from quantizer.core.files import exists

if TYPE_CHECKING:
    from quantizer.conformance.collection import State
    from quantizer.conformance.options import Options
    from quantizer.conformance.session import Session
    from quantizer.conformance.singing import Canary
    from quantizer.core.record import Record
    from quantizer.plugins.discovery import Plugin

LISTS = {
    "op_specs": "file or folder of operator specs beside the shipped ones",
    "op_plugins": "file or folder of operator plugins",
    "op_shipped": "run the shipped spec of this operator too: one of which a plugin replaces a function",
    "op_platform": "run only this platform",
    "op_scheme": "run only this scheme",
    "op_check": "run only this check",
    "op_reading": "OPERATOR/PLATFORM:READING, another arithmetic that is right for a plugin of the operator there",
}
SINGLES = {
    "op_engine": ("own", "engine under test: own, or a real one as `quantizer engine list` names it"),
    "op_isa": (
        "",
        "level of instructions that a real engine is held to: avx2, avx512, avx512_vnni, amx, host (what the processor has), "
        "or all, each as items of its own; an engine without such a switch runs unpinned",
    ),
    "op_profile": ("gate", "gate, dev or nightly"),
    "op_report": ("reports/out", "folder for records, summary and failures"),
    "op_baseline": ("", "records file that the run must not fall behind"),
    "op_xfails": ("", "YAML file of known failures, each with reason, owner, expiry and a stored case"),
    "op_shard": ("", "run the K-th of N parts, K/N; `quantizer report merge` makes them one run"),
    "op_cases": ("cases", "folder of golden, regressions and defects"),
}
WITHOUT = {"op_isa": "avx2, and host on a processor without it"}
"""What an option that is left out means."""
OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
SESSION: pytest.StashKey[Session] = pytest.StashKey()
STATE: pytest.StashKey[State] = pytest.StashKey()
EXTRA: pytest.StashKey[list[Path]] = pytest.StashKey()
PLUGINS: pytest.StashKey[list[Plugin]] = pytest.StashKey()
RUN: pytest.StashKey[Run] = pytest.StashKey()
CANARY: pytest.StashKey[Canary] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add one group of options, all of them `--op-...`, with ini keys of the same names."""
    group = parser.getgroup("quantizer", "conformance of quantized operators")
    for name, text in LISTS.items():
        group.addoption(_flag(name), action="append", metavar=_meta(name), help=f"{text} (repeatable)")
        parser.addini(name, text, type="linelist", default=[])
    for name, (default, text) in SINGLES.items():
        group.addoption(
            _flag(name), metavar=_meta(name), help=f"{text} (default: {default or WITHOUT.get(name, 'none')})"
        )
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
    config.stash[PLUGINS] = []
    config.pluginmanager.register(ShippedSpecs(config, _spec_file), "quantizer-shipped")
    if not hasattr(config, "workerinput"):
        config.stash[RUN] = Run()
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
    from quantizer.reporting.shards import read_shard

    here, root = config.invocation_params.dir, config.rootpath

    def paths(name: str) -> tuple[Path, ...]:
        base = here if config.getoption(name) else root
        return tuple((base / item).resolve() for item in _value(config, name))

    update = config.getoption("op_golden_update")
    if update is not None and not update.strip():
        raise UnsupportedError(
            "--op-golden-update: say why the codes change, as in --op-golden-update 'first goldens'."
        )
    if update is not None and _value(config, "op_engine") != "own":
        raise UnsupportedError("--op-golden-update: goldens are the codes of our own engine. Leave --op-engine out.")
    if update is not None and os.environ.get("CI"):
        raise UnsupportedError("--op-golden-update: goldens are never written under CI. Update them at your desk.")
    if _value(config, "op_profile") == "gate" and config.getoption("hypothesis_seed", None) is not None:
        raise UnsupportedError("--hypothesis-seed: the gate profile has no seed. Add --op-profile nightly.")

    shard = _value(config, "op_shard")

    def file(name: str) -> Path | None:
        base, given = here if config.getoption(name) else root, _value(config, name)
        return base / given if given else None

    return Options(
        root=root, specs=paths("op_specs"), plugins=paths("op_plugins"), engine=_value(config, "op_engine"),
        isa=_value(config, "op_isa"), platforms=tuple(_value(config, "op_platform")), schemes=tuple(_value(config, "op_scheme")),
        checks=tuple(_value(config, "op_check")) or CHECKS, profile=_value(config, "op_profile"),
        reports=root / _value(config, "op_report"), cases=root / _value(config, "op_cases"),
        baseline=file("op_baseline"), xfails=file("op_xfails"), golden_update=update,
        readings=tuple(_value(config, "op_reading")),
        shard=read_shard(shard, "--op-shard") if shard else None,
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
        from quantizer.core.errors import QuantizerError

        gc.collect()
        gc.freeze()  # what is loaded so far lives as long as the run: later collections need not walk it
        asked, extra = options(config), (*config.stash[EXTRA],)
        problem = None
        try:
            config.stash[SESSION] = open_session(asked, extra)
        except QuantizerError as err:
            problem = str(err)
        if problem is not None:
            pytest.fail(problem, pytrace=False)
    return config.stash[SESSION]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Read the options and load plugins before anything is collected: a broken one ends the run.

    What a plugin is judged by is imported before it: a name that it changes is not the judge's own any more.
    """
    from quantizer.plugins.discovery import load_plugins, sources

    config = session.config
    asked = options(config)
    _with_usage_errors(lambda: asked.thresholds)
    if asked.baseline is not None and not exists(asked.baseline):
        raise pytest.UsageError(f"--op-baseline: {asked.baseline} does not exist. Copy a run's records.jsonl there.")
    _with_usage_errors(asked.check_named)
    environment = dict(os.environ)
    found = _with_usage_errors(lambda: sources(asked.plugins, environment))
    if named := _named(config):
        claim(config)
    if found:
        import_module("quantizer.conformance.singing")
        if not named:
            _try_to_claim(config)
        plugins = _with_usage_errors(lambda: load_plugins(asked.plugins, environment))
        _with_usage_errors(lambda: asked.check_plugins(plugins))
        config.stash[EXTRA] += [folder for plugin in plugins for folder in plugin.specs]
        config.stash[PLUGINS] += plugins
    if asked.platforms or asked.schemes:
        extra: list[Path] = config.stash[EXTRA]
        _with_usage_errors(lambda: asked.library(extra))


def _named(config: pytest.Config) -> bool:
    """Return whether the command line asks for anything of ours: such a session is a run."""
    names = (*LISTS, *SINGLES, "op_golden_update")
    return any(config.getoption(name) is not None for name in names)


def claim(config: pytest.Config) -> None:
    """Take the folder of the run, on the process that writes files: from now on no older run in it is valid."""
    from quantizer.reporting.folder import RunFolder

    run = config.stash.get(RUN, None)
    if run is None or run.folder is not None or config.getoption("collectonly"):
        return
    folder = RunFolder(options(config).reports)
    _with_usage_errors(folder.claim)
    run.folder = folder


def _try_to_claim(config: pytest.Config) -> None:
    """Take the folder before plugins run, if nobody has it: whether the session has an item of ours is not known yet."""
    with contextlib.suppress(pytest.UsageError):
        claim(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what other shards run."""
    shard = options(config).shard
    if shard is None:
        return
    left = [item for item in items if not shard.holds(item.name if STATE in item.stash else item.nodeid)]
    if left:
        away = set(left)
        items[:] = [item for item in items if item not in away]
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Read known failures once every spec is known: what names none of them, or has expired, ends the run."""
    asked = options(session.config)
    extra: list[Path] = session.config.stash[EXTRA]
    if asked.xfails is not None:
        _with_usage_errors(lambda: asked.with_xfails(asked.library(extra)))
    run = session.config.stash.get(RUN, None)
    if run is not None:
        run.expect({item.nodeid: item.stash[STATE] for item in session.items if STATE in item.stash})
        if problem := _selects_nothing(session.config, run):
            raise pytest.UsageError(problem)


def _selects_nothing(config: pytest.Config, run: Run) -> str | None:
    """Return which platform or scheme was named and has no item, where no keyword and no shard left items out."""
    from quantizer.conformance.closing import nothing_selected

    asked = options(config)
    if asked.shard is not None or selection(config) or not (asked.platforms or asked.schemes) or not run.items:
        return None
    return nothing_selected(asked, [name.rpartition("::")[2] for name in run.items])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file that has a top-level `op:` key."""
    if file_path.suffix != ".yaml" or not _is_spec(file_path):
        return None
    return _spec_file(parent, file_path)


def _spec_file(parent: pytest.Collector, path: Path, platforms: set[str] | None = None) -> pytest.Collector:
    root = parent.config.rootpath
    named: dict[str, Any] = {} if path.is_relative_to(root) else {"nodeid": place(path, root)}
    collector: SpecFile = SpecFile.from_parent(parent, path=path, **named)
    collector.platforms = platforms
    return collector


def _is_spec(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return any(line.startswith("op:") for line in stream.read(4096).splitlines())
    except OSError:
        return False


class SpecFile(pytest.File):
    """One spec: an item for each scheme x platform, and one each for spec, golden, reject and regressions."""

    platforms: set[str] | None = None
    """Of a shipped spec: where cases are wanted, beside regressions; None: every item."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the items in a stable order; a spec that cannot be read is a collection error with its places."""
        from quantizer.conformance.collection import collect, item
        from quantizer.core.errors import QuantizerError, UnsupportedError

        config = self.config
        claim(config)
        try:
            found = [*collect(self.path, self.nodeid, options(config), lambda: opened(config), config.stash[EXTRA])]
        except UnsupportedError as err:
            raise pytest.UsageError(str(err)) from None
        except QuantizerError as err:
            raise self.CollectError(str(err)) from None
        for state in found:
            wanted = self.platforms is None or state.kind == "regressions" or state.platform in self.platforms
            if not wanted:
                continue
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
    """Hand the item's record to the report, which crosses process borders; and its figures to JUnit.

    Setting up and tearing down make a record of their own only where they fail, or skip: only the gate leaves an item out.
    """
    if STATE not in item.stash or (call.when != "call" and call.excinfo is None):
        return (yield)
    state = item.stash[STATE]
    record = _record(state, call)
    ended = None if call.excinfo else state.ended(record)
    if ended is not None:
        record = state.record(*ended)
    figures = {"op": record.op, "scheme": record.scheme, "platform": record.platform, "cases": record.cases}
    item.user_properties += [(name, value) for name, value in figures.items() if value]
    item.user_properties.append(("rerun", state.rerun))
    if record.checks:
        worst = max(check.ratio for check in record.checks.values())
        item.user_properties.append(("ratio", f"{worst:.6g}"))
    report = yield
    if ended is not None:
        text = f"{state.name}: {record.failure}"
        report.outcome = ended[0]
        report.longrepr = text if report.failed else (str(item.path), 0, f"Skipped: {text}")
    report.op_record = record.to_json()
    report.op_replaced = state.replaced()
    report.op_changes = state.changes()
    report.op_spec = (record.op, state.facts.model_dump())
    if report.passed and state.kind == "cases":
        report.op_witnessed = state.runner.witness is not None
        _offer(item, state)
    return report


def _record(state: State, call: pytest.CallInfo[None]) -> Record:
    """Return the item's record: skipped only where the engine or a declaration says that it does not run."""
    if call.excinfo is None:
        return state.record("passed")
    said = (str(call.excinfo.value).splitlines() or [""])[0]
    if call.when != "call":
        return state.record("failed", f"{call.when}: {call.excinfo.typename}: {said}")
    if not call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
        return state.record("failed", f"{call.excinfo.typename}: {said}")
    if state.left_out is not None:
        return state.record("skipped")
    return state.record("failed", f"was skipped by something else than the gate: {said}")


def _offer(item: pytest.Item, state: State) -> None:
    """Remember an item that passed, for the canary at the end."""
    from quantizer.conformance.singing import Canary

    item.config.stash.setdefault(CANARY, Canary()).offer(item, state)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Plant a fault in what was judged; then, on the process that writes files, write the run and consult the baseline."""
    config = session.config
    said = _sung(config) if exitstatus in ENDED else None
    run = config.stash.get(RUN, None)
    if run is None:
        if said is not None:
            config.workeroutput["op_canary"] = said  # type: ignore[attr-defined]
        return
    if said is not None:
        run.sung("", said)
    if run.items:
        with contextlib.suppress(pytest.UsageError):
            claim(config)
    if run.folder is None:
        return
    try:
        session.exitstatus = _finish(config, run, exitstatus)
    finally:
        run.folder.release()


def _sung(config: pytest.Config) -> tuple[int, str] | None:
    canary = config.stash.get(CANARY, None)
    return None if canary is None else canary.sing(STATE)


def _finish(config: pytest.Config, run: Run, status: int) -> int:
    """Write the run, or say why it is not whole; return the exit status."""
    from quantizer.conformance.closing import close_run, complete, functions, status_of
    from quantizer.core.errors import QuantizerError

    assert run.folder is not None
    asked, extra = options(config), config.stash[EXTRA]
    empty = status == pytest.ExitCode.NO_TESTS_COLLECTED
    if not run.items and not (asked.shard and empty):
        _account(config, run)
        if status in ENDED and not _named(config):
            run.folder.restore()
        else:
            run.folder.fail(f"pytest ended with exit status {int(status)}, and no item of an operator was collected.")
        return status
    try:
        records = complete(run, asked, extra, status)
        if problem := _selects_nothing(config, run):
            run.lacks.append(problem)
            status = pytest.ExitCode.USAGE_ERROR
        status = status_of(pytest.ExitCode.OK if asked.shard and empty else status, records, run)
        functions(run, records, asked.library(extra).platforms, asked)
        facts = run.facts(config, asked, extra, config.stash[PLUGINS])
        run.readings = facts.readings
        items = sorted(name.rpartition("::")[2] for name in run.items)
        told = {"items": items, "exit": int(status), "lacks": run.lacks, "functions": run.functions}
        filtered = run.deselected or bool(selection(config))
        facts = facts.model_copy(update=told)
        run.problems = close_run(run, records, facts, asked, filtered=filtered)
    except QuantizerError as err:
        run.unwritten = str(err)
        with contextlib.suppress(QuantizerError):
            run.folder.fail(f"its records could not be written: {run.unwritten.splitlines()[0]}")
        return pytest.ExitCode.USAGE_ERROR
    return pytest.ExitCode.TESTS_FAILED if run.problems and status == 0 else status


def _account(config: pytest.Config, run: Run) -> None:
    """Name the functions of plugins in a session without an item of ours."""
    from quantizer.conformance.closing import functions
    from quantizer.core.errors import QuantizerError

    extra: list[Path] = config.stash[EXTRA]
    if config.stash[PLUGINS] and not config.getoption("collectonly"):
        with contextlib.suppress(QuantizerError):
            functions(run, [], options(config).library(extra).platforms, options(config))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the worst items, totals, holes, and what the baseline holds against the run."""
    run = config.stash.get(RUN, None)
    if run is None:
        return
    if run.functions and options(config).golden_update is None:
        _show_functions(terminalreporter, run)
    if not run.records:
        _show_problems(terminalreporter, run)
        return
    from quantizer.core.readings import READINGS
    from quantizer.core.record import read_records
    from quantizer.reporting.terminal import render

    if config.get_verbosity() >= 0:
        records = [*read_records([*run.records.values()], "run")]
        where = options(config).shown(options(config).reports / "records.jsonl")
        terminalreporter.section("operators")
        for line in render(records, width=terminalreporter._tw.fullwidth, path=where):
            terminalreporter.write_line(line)
    for change in sorted(run.changes):
        terminalreporter.write_line(f"golden: {change}")
    for entry in sorted(run.replaced):
        terminalreporter.write_line(f"replaced: {entry}")
    for reading in run.readings:
        terminalreporter.write_line(f"reading: {reading} ({READINGS[reading.rpartition(':')[2]]})")
    for problem in run.problems:
        terminalreporter.write_line(f"baseline: {problem}", red=True)
    _show_problems(terminalreporter, run)


def _show_functions(terminalreporter: Any, run: Run) -> None:
    """Name every function of a plugin that no item judged."""
    from quantizer.conformance.accounting import line
    from quantizer.ops import REGISTRY

    ran = set(run.specs)
    replacing = {entry.op for entry in REGISTRY.replacements()}
    for text in filter(None, (line(one, ran, replacing) for one in run.functions)):
        terminalreporter.write_line(text, yellow=True)


def _show_problems(terminalreporter: Any, run: Run) -> None:
    for problem in run.lacks:
        terminalreporter.write_line(f"not whole: {problem}", red=True)
    if run.unwritten:
        terminalreporter.write_line(f"the run's records are not written: {run.unwritten}", red=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what decides the numbers of this run."""
    from quantizer.core.levels import label

    asked = options(config)
    version = f" {asked.real.version or '(not installed)'}" if asked.real else ""
    levels = f", instructions {', '.join(map(label, asked.levels))}" if asked.real else ""
    lines = [f"quantizer: profile {asked.profile}, engine {asked.engine}{version}{levels}"]
    return lines + [f"quantizer: reading {reading}" for reading in asked.readings]
