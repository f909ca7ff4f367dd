"""Registers proxies of plugins' functions with the judge; the functions themselves run in the plugin process."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantizer.core.errors import PluginError
from quantizer.core.rooms import loaded
from quantizer.core.spec import Spec
from quantizer.ops import REGISTRY, Place, Registration, load_built_ins
from quantizer.ops.registry import BUILT_IN, KINDS, OVERRIDE
from quantizer.plugins.bridge import layer_type
from quantizer.plugins.discovery import Plugin, installed, load_plugins, sources, spec_folders
from quantizer.runtime.isolation.host import Host
from quantizer.runtime.isolation.launch import limits


class StandIn:
    """Represents a plugin's function in the judge, and calls it in the plugin process."""

    def __init__(self, host: Host, number: int, name: str, accepts: Sequence[Sequence[str]]) -> None:
        self._host = host
        self._number = number
        self.__name__ = self.__qualname__ = name
        self.__signature__ = inspect.Signature(
            # the signature lets callers ask which arguments the function takes
            [inspect.Parameter(item, inspect._ParameterKind[kind]) for item, kind in accepts],
            __validate_parameters__=False,
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the result of the plugin's function."""
        return self._host.call(self._number, args, named)


@dataclass
class Isolated:
    """The plugins of a run, in a separate process."""

    host: Host
    plugins: list[Plugin]
    layers: frozenset[str]
    """Layer types for which the plugins have functions."""
    entries: list[Registration]
    """Registrations in the judge's process; each forwards calls to the process of plugins."""
    sources: tuple[str, ...] = ()
    """The places where a command found the plugins."""

    def register(self) -> None:
        """Register the stand-ins; already registered ones are left as they are."""
        for entry in self.entries:
            with REGISTRY.loading(entry.origin):
                REGISTRY.add(entry)

    def connect(self, specs: Mapping[str, Spec]) -> None:
        """Register layer functions under the operators with their layer type; PluginError if there is none."""
        mine = {op: spec for op, spec in specs.items() if layer_type(spec) in self.layers}
        # connecting twice would register the functions twice
        if self.layers and not (mine and self.host.has_connected(mine)):
            self.entries += described(self.host, self.host.connect(mine))
        self.register()


CURRENT: list[Isolated] = []
"""The plugins that this process judges; one at most."""


def deaths() -> int:
    """Return how many processes of plugins ended during a question."""
    return sum(one.host.ended for one in CURRENT)


def run_flow(place: str, op: str, platform: Place, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return the result of our `module:function`, run in the process of the functions of *op*.

    That is the plugin process if one of them is a plugin's. Otherwise it is this process, where planted faults replace
    functions.
    """
    running = [entry for kind in KINDS if (entry := REGISTRY.find(op, kind, platform)) and entry.origin != BUILT_IN]
    if running and all(entry.apart for entry in running):
        return CURRENT[0].host.flow(place, args, named)
    return loaded(place)(*args, **named)


def load(host: Host) -> Isolated:
    """Load every plugin in *host*, register a stand-in for each function; PluginError for the first broken one."""
    load_built_ins()
    greeting = host.load()
    plugins = [_plugin(item) for item in greeting["plugins"]]
    found = Isolated(host, plugins, frozenset(greeting["layers"]), _declared(host, greeting["functions"]))
    found.register()
    CURRENT[:] = [found]
    return found


def judged(
    paths: Sequence[Path], environment: Mapping[str, str] | None = None, *, python: str = "", in_process: bool = False
) -> list[Plugin]:
    """Return the plugins that a command judges, loaded in a separate process that ends with this one.

    python: the interpreter of that process; in_process: load them here, for a debugger. PluginError for a broken
    plugin.
    """
    variables = dict(os.environ if environment is None else environment)
    if in_process:
        return load_plugins(paths, variables)
    found = () if python else tuple(map(str, sources(paths, variables)))
    if not found and not python:
        return []
    for one in CURRENT:
        if one.sources == found and found:
            one.register()
            return one.plugins
    made = load(Host(paths, limits(), python, variables=variables))
    made.sources = found
    return made.plugins


def installed_specs() -> list[Path]:
    """Return the folders of specs that installed packages of operators bring; PluginError if one does not import."""
    return spec_folders(judged(())) if installed() else []


def _declared(host: Host, functions: Sequence[Mapping[str, Any]]) -> list[Registration]:
    """Return stand-ins for functions that @operator registered; PluginError for one that leaves out cases silently.

    Only a layer may run without fused activations. Every other function must declare that in `unsupported`, which is
    counted.
    """
    for told in functions:
        if not told["fuses"] or told["activates"]:
            raise PluginError(
                f"{told['op']}.{told['kind']} ({told['origin']}): is registered as a layer is, without fused"
                " activations. Use @operator(..., unsupported=...)."
            )
    return described(host, functions)


def described(host: Host, functions: Sequence[Mapping[str, Any]]) -> list[Registration]:
    """Return stand-ins for *functions* as a process described them; PluginError for one that claims to be built-in."""
    found = []
    for number, told in zip(host.describe(functions), functions, strict=True):
        origin = str(told["origin"])
        # a plugin that claimed to be built-in would run in the judge without being judged
        if origin in ("", BUILT_IN, OVERRIDE) or told["kind"] not in KINDS:
            raise PluginError(f"{told['op']}.{told['kind']} ({origin}): is not a function of a plugin.")
        stand_in = StandIn(host, number, str(told["kind"]), told["accepts"])
        found.append(
            Registration(
                str(told["op"]),
                told["kind"],
                stand_in,
                tuple(map(int, told["version"])),
                told["platform"],
                origin,
                bool(told["fuses"]),
                bool(told["activates"]),
                dict(told["unsupported"]),
                apart=True,
                batched=bool(told["batched"]),
            )
        )
    return found


def _plugin(told: Mapping[str, Any]) -> Plugin:
    texts = {name: tuple(map(str, told[name])) for name in ("versions", "operators", "datasets", "metrics")}
    specs = tuple(Path(path) for path in told["specs"])
    return Plugin(str(told["name"]), str(told["origin"]), **texts, specs=specs)
