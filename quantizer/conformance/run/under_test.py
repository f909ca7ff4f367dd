"""The plugins of a session. They run in a separate process or, for a debugger, in pytest's process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from quantizer.conformance.run.collection import meet
from quantizer.conformance.run.command_line import named, opened, options, with_usage_errors
from quantizer.conformance.run.folder_lock import try_to_lock_run_folder
from quantizer.conformance.run.stash_keys import EXTRA, HOST, INPUTS, PLUGINS, SESSION
from quantizer.conformance.setup.profiles import PROFILES
from quantizer.core.errors import QuantizerError
from quantizer.plugins.discovery import Plugin, load_plugins, sources

if TYPE_CHECKING:
    from quantizer.runtime.engines.child import Child, Limits


JUDGING = (
    "quantizer.conformance.run.canary",
    "quantizer.conformance.run.finish",
    "quantizer.conformance.run.plugin_coverage",
    "quantizer.reporting.gate",
    "quantizer.reporting.terminal",
)
"""Modules that judge a plugin and are imported before it. Later ones are compiled from their sources."""
DRAWING = ("hypothesis.strategies",)
"""Further such modules under a profile that draws cases."""


def launch_early(config: pytest.Config) -> None:
    """Start the process of plugins, if there are any, to import while pytest does. Errors are reported later."""
    from quantizer.runtime.isolation.launch import launch

    with contextlib.suppress(pytest.UsageError, QuantizerError):
        asked = options(config)
        if not asked.in_process and (asked.plugin_python or sources(asked.plugins, dict(os.environ))):
            child = launch(_limits(config), asked.plugin_python)
            config.stash[HOST] = child
            config.add_cleanup(lambda: _closed(child))


def load(config: pytest.Config) -> None:
    """Load plugins, or register stand-ins for their functions. The first broken plugin is a usage error.

    The modules that judge a plugin in this process are imported before it, so that it cannot change their names.
    """
    asked = options(config)
    found = with_usage_errors(lambda: sources(asked.plugins, dict(os.environ)))
    if not found and not asked.plugin_python:
        return
    for name in (*JUDGING, *(DRAWING if PROFILES[asked.profile].drawn else ())):
        import_module(name)
    if not named(config):
        try_to_lock_run_folder(config)
    from quantizer.conformance.run.inputs import Inputs
    from quantizer.ops import load_built_ins

    load_built_ins()
    # the state of all files is taken before the first line of a plugin runs
    config.stash.setdefault(INPUTS, Inputs(config, asked)).read_no_caches(config)
    plugins: list[Plugin] = with_usage_errors(lambda: _loaded(config))
    require_same_inputs(config, "plugins were loaded. A plugin")
    with_usage_errors(lambda: asked.check_plugins(plugins))
    config.stash[EXTRA] += [folder for plugin in plugins for folder in plugin.specs]
    config.stash[PLUGINS] += plugins


def require_same_inputs(config: pytest.Config, meanwhile: str) -> None:
    """Raise a usage error if a file that the run is judged by has changed."""
    inputs = config.stash.get(INPUTS, None)
    if inputs is not None and (changed := inputs.changed()):
        raise pytest.UsageError(f"{changed}: changed while {meanwhile} writes no file of the run.")


def _closed(child: Child) -> None:
    child.close()


def _limits(config: pytest.Config) -> Limits:
    from quantizer.runtime.isolation.launch import limits

    return limits(*options(config).plugin_limits)


def _loaded(config: pytest.Config) -> list[Plugin]:
    asked = options(config)
    if asked.in_process:
        return load_plugins(asked.plugins, dict(os.environ))
    from quantizer.runtime.isolation import plugins
    from quantizer.runtime.isolation.host import Host

    host = Host(asked.plugins, _limits(config), asked.plugin_python, config.stash.get(HOST, None))
    found = plugins.load(host)
    config.add_cleanup(host.close)
    # the main process of xdist loads plugins only to know their functions
    distributes = not hasattr(config, "workerinput") and getattr(config.option, "dist", "no") != "no"
    if distributes and not found.layers:  # the functions of layers are registered at the end (`connect_layers`)
        host.close()  # the workers of xdist call functions, each in its own process
    return found.plugins


def connect_layers(config: pytest.Config, files: Iterable[str]) -> None:
    """Register layer functions of plugins, which need the specs, in a process that opened no session.

    Under xdist, the process that writes files collects nothing, and a worker may run no item. Still, each must know the
    same functions as the other processes. *files*: the spec files of the run, relative to its root.
    """
    from quantizer.plugins.loading import LAYERS
    from quantizer.runtime.isolation.plugins import CURRENT

    if SESSION in config.stash or not (LAYERS or any(one.layers for one in CURRENT)):
        return
    with contextlib.suppress(pytest.fail.Exception, QuantizerError):
        for file in files:
            meet(config.rootpath / file, options(config), config.stash[EXTRA])
        opened(config)


def registered(config: pytest.Config) -> list[str]:
    """Return a line for each function of a plugin, with what it declares as unsupported, and one for the engine."""
    real = options(config).real
    found = [] if real is None or real.missing or real.greeting is None else [f"engine {real.greeting}"]
    if not config.stash[PLUGINS]:
        return found
    from quantizer.ops import REGISTRY
    from quantizer.ops.registry import BUILT_IN, OVERRIDE

    entries = (entry for entry in REGISTRY.all() if entry.origin not in (BUILT_IN, OVERRIDE))
    return found + sorted(f"{entry}{dict(entry.unsupported) or ''}" for entry in entries)


def end(config: pytest.Config) -> int:
    """End the processes of plugins and of a real engine; return how many processes they would have left behind."""
    left = 0
    if options(config).real is not None:
        from quantizer.runtime.engines.process import close_all

        left = close_all()
    if not config.stash[PLUGINS] or options(config).in_process:
        return left
    from quantizer.runtime.isolation.plugins import CURRENT

    for one in CURRENT:
        one.host.close()
    return left + sum(one.host.left for one in CURRENT)
