"""The options of pytest's command line and ini file, and their values."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quantizer.conformance.run.stash_keys import EXTRA, INPUTS, OPTIONS, SESSION
from quantizer.core.files import resolved
from quantizer.core.wording import near

if TYPE_CHECKING:
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import Session


LISTS = {
    "op_specs": "file or folder of operator specs, in addition to the shipped ones",
    "op_plugins": "file or folder of operator plugins",
    "op_shipped": "also run the shipped spec of this operator: on your engine or platform, or with your plugin",
    "op_platform": "run only this platform",
    "op_scheme": "run only this scheme",
    "op_check": "run only this check",
    "op_reading": "OPERATOR/PLATFORM:READING, another arithmetic that is also correct for a plugin there",
}
SINGLES = {
    "op_engine": (
        "builtin",
        "engine under test: builtin, a real one as `quantizer engine list` names it, NAME@VERSION in an environment of "
        "its own, or PYTHON:WORKER, an interpreter and the file or module of a worker",
    ),
    "op_engine_command": ("", "command line of a worker that speaks the protocol of engines, in place of --op-engine"),
    "op_isa": (
        "",
        "level of instruction sets that a real engine may use: avx2, avx512, avx512_vnni, amx, host (what the "
        "processor has), or all, each as separate items; an engine without such a switch runs unpinned",
    ),
    "op_profile": ("gate", "gate, dev or nightly"),
    "op_report": ("reports/out", "folder for records, summary and failures"),
    "op_baseline": ("", "records file of a baseline: a run that finds less, covers less or regresses fails"),
    "op_xfails": ("", "YAML file of known failures, each with reason, owner, expiry date and a stored case"),
    "op_shard": ("", "run the K-th of N parts, K/N; `quantizer report merge` merges them"),
    "op_plugin_python": ("", "interpreter of the process that runs functions of plugins"),
    "op_plugin_timeout": ("60", "time limit of one call of a plugin's function, in seconds"),
    "op_plugin_memory": ("4", "memory limit of the process of plugins, in gigabytes"),
    "op_cases": ("cases", "folder of golden, regressions and defects"),
}
WITHOUT = {"op_plugin_python": "that of pytest", "op_isa": "avx2, and host on a processor without it"}
"""What an option means if it is left out."""


PATHS = ("op_specs", "op_plugins")
"""Lists whose entries may hold spaces: one in a line of an ini file."""
SEVERAL = ("op_engine", "op_engine_command")
"""Options that may name several engines: each then has its own session (run.several_engines)."""
GARBAGE = 20_000
"""Objects made and not freed after which the garbage collector looks for cycles, in a run."""
OTHERS = ("op_golden_update", "op_in_process")
"""Options without an ini key."""


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Reject a misspelt `--op-...` and suggest the nearest name. pytest would only say that the option is unknown."""
    del early_config
    known = [flag(name).removeprefix("--op-") for name in (*LISTS, *SINGLES, *OTHERS)]
    for word in args:
        name = word.partition("=")[0]
        # only files follow
        if word == "--":
            return
        asked = name.removeprefix("--op-")
        if asked != name and asked not in known:
            hint = near(asked, known).replace("mean '", "mean '--op-")
            raise pytest.UsageError(f"{name}: no such option.{hint} See `pytest --help`.")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add one group of options, all of them `--op-...`, with ini keys of the same names."""
    group = parser.getgroup("quantizer", "conformance of quantized operators")
    for name, text in LISTS.items():
        group.addoption(flag(name), action="append", metavar=_meta(name), help=f"{text} (repeatable)")
        if name in PATHS:
            parser.addini(name, text, type="linelist", default=[])
        else:  # a name has no space, so that names may share a line, as in pytest's own keys
            parser.addini(name, text, type="args", default=[])
    for name, (default, text) in SINGLES.items():
        group.addoption(
            flag(name),
            action="append" if name in SEVERAL else "store",
            metavar=_meta(name),
            help=f"{text} (default: {default or WITHOUT.get(name, 'none')})",
        )
        parser.addini(name, text, default=default)
    group.addoption(
        "--op-golden-update", metavar="REASON", help="rewrite the goldens of the selected operators, for this reason"
    )
    group.addoption(
        "--op-in-process",
        action="store_true",
        help="run functions of plugins in pytest's own process, for a debugger; no statement is made of such a run",
    )


def flag(name: str) -> str:
    """Return the option of a name."""
    return f"--{name.replace('_', '-')}"


def _meta(name: str) -> str:
    return name.removeprefix("op_").upper()


def value(config: pytest.Config, name: str) -> Any:
    """Return what the command line gives for an option, or the project's file."""
    given = config.getoption(name)
    if given is None:
        return config.getini(name)
    # sessions with several engines never come here with more than one
    return given[-1] if name in SEVERAL else given


def options(config: pytest.Config) -> Options:
    """Return the options of the run; a wrong value is a usage error that names the legal ones."""
    # read once: every hook asks for them
    if OPTIONS not in config.stash:
        config.stash[OPTIONS] = with_usage_errors(lambda: _with_engine(config, _read_options(config)))
    return config.stash[OPTIONS]


def _with_engine(config: pytest.Config, asked: Options) -> Options:
    """Return *asked* with its engine resolved.

    The files that the run is judged by are recorded before any part of the engine runs.
    """
    name, command = value(config, "op_engine"), value(config, "op_engine_command")
    if name == asked.engine and not command:
        return asked
    # imported here, as in all hooks: without quantizer items, pytest should not load these modules
    from quantizer.conformance.run.inputs import Inputs
    from quantizer.runtime.engines.catalogue import files

    config.stash[INPUTS] = Inputs(config, asked, files(name, command))
    return replace(asked, engine=name, engine_command=command)


def _read_options(config: pytest.Config) -> Options:
    from quantizer.conformance.setup.options import Options
    from quantizer.core.verdict import CHECKS
    from quantizer.reporting.shards import read_shard

    here, root = config.invocation_params.dir, config.rootpath

    def paths(name: str) -> tuple[Path, ...]:
        # a path on the command line is relative to the current folder, one in the ini file to its folder
        base = here if config.getoption(name) else root
        return tuple(resolved(base / item) for item in value(config, name))

    def file(name: str) -> Path | None:
        base, given = here if config.getoption(name) else root, value(config, name)
        return base / given if given else None

    _check_combinations(config)
    shard = value(config, "op_shard")
    return Options(
        root=root,
        specs=paths("op_specs"),
        plugins=paths("op_plugins"),
        isa=value(config, "op_isa"),
        platforms=tuple(value(config, "op_platform")),
        schemes=tuple(value(config, "op_scheme")),
        checks=tuple(value(config, "op_check")) or CHECKS,
        profile=value(config, "op_profile"),
        reports=root / value(config, "op_report"),
        cases=root / value(config, "op_cases"),
        baseline=file("op_baseline"),
        xfails=file("op_xfails"),
        golden_update=config.getoption("op_golden_update"),
        readings=tuple(value(config, "op_reading")),
        in_process=config.getoption("op_in_process"),
        plugin_python=_interpreter(config),
        plugin_limits=(_number(config, "op_plugin_timeout"), _number(config, "op_plugin_memory")),
        shard=read_shard(shard, "--op-shard") if shard else None,
    )


def _check_combinations(config: pytest.Config) -> None:
    """Raise UnsupportedError for options that exclude each other, or goldens that may not be written."""
    from quantizer.core.errors import UnsupportedError

    update = config.getoption("op_golden_update")
    if update is not None and not update.strip():
        raise UnsupportedError(
            "--op-golden-update: say why the codes change, as in --op-golden-update 'first goldens'."
        )
    if update is not None and (value(config, "op_engine") != "builtin" or value(config, "op_engine_command")):
        raise UnsupportedError("--op-golden-update: goldens are the codes of our own engine. Leave --op-engine out.")
    if config.getoption("op_engine") is not None and config.getoption("op_engine_command") is not None:
        raise UnsupportedError("--op-engine and --op-engine-command: each names the engine under test. Remove one.")
    if update is not None and os.environ.get("CI"):
        raise UnsupportedError("--op-golden-update: goldens are never written under CI. Update them at your desk.")
    if value(config, "op_profile") == "gate" and config.getoption("hypothesis_seed", None) is not None:
        raise UnsupportedError("--hypothesis-seed: the gate profile has no seed. Add --op-profile nightly.")


def _interpreter(config: pytest.Config) -> str:
    """Return the path of the interpreter for plugins, or "" for this one.

    It is not resolved: in a virtual environment it is a link, and its target has other packages.
    """
    python = value(config, "op_plugin_python")
    base = config.invocation_params.dir if config.getoption("op_plugin_python") else config.rootpath
    return str(base / Path(python).expanduser()) if python else ""


def _number(config: pytest.Config, name: str) -> float:
    from quantizer.core.errors import UnsupportedError

    given = value(config, name)
    try:
        return float(given)
    except ValueError:
        raise UnsupportedError(f"{flag(name)}={given}: must be a number.") from None


def with_usage_errors(function: Any) -> Any:
    """Return the result of *function*; our own errors become usage errors of pytest."""
    from quantizer.core.errors import QuantizerError

    try:
        return function()
    except QuantizerError as err:
        raise pytest.UsageError(str(err)) from None


def named(config: pytest.Config) -> bool:
    """Return whether the command line uses one of our options: such a session is a run."""
    names = (*LISTS, *SINGLES, "op_golden_update")
    return any(config.getoption(name) is not None for name in names)


def opened(config: pytest.Config) -> Session:
    """Return the session of the run. It is opened when the first item runs, or when goldens need it."""
    if SESSION not in config.stash:
        from quantizer.conformance.setup.session import open_session
        from quantizer.core.errors import QuantizerError

        gc.collect()
        gc.set_threshold(GARBAGE)  # a case leaves some eight objects for the collector, and needs many in between
        gc.freeze()  # objects loaded so far live as long as the run, so the garbage collector need not visit them
        asked, extra = options(config), (*config.stash[EXTRA],)
        # failed outside the except block, so that pytest shows no chain of exceptions
        problem = None
        try:
            config.stash[SESSION] = open_session(asked, extra)
        except QuantizerError as err:
            problem = str(err)
        if problem is not None:
            pytest.fail(problem, pytrace=False)
        gc.freeze()  # nor the objects of the library
    return config.stash[SESSION]
