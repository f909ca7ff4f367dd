"""An open session: plugins registered, library loaded, engine chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from quantizer.conformance.setup.options import Options
from quantizer.conformance.target import Target
from quantizer.core.errors import PluginError
from quantizer.core.files import is_file, resolved
from quantizer.core.library import Library
from quantizer.core.spec import Spec
from quantizer.core.wording import suggestion
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.plugins.bridge import connect
from quantizer.plugins.signatures import check_declared, check_signature
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.protocol import Engine
from quantizer.runtime.isolation.plugins import CURRENT


@dataclass(frozen=True)
class Session:
    """A loaded library with plugins registered, and the engine under test."""

    options: Options
    library: Library
    engine: Engine
    _others: dict[str, Session] = field(default_factory=dict, repr=False, compare=False)

    def at(self, level: str) -> Session:
        """Return this session with the engine limited to *level*, one of the options'. Each level keeps its worker."""
        if self.options.real is None or level == self.engine.isa:
            return self
        if level not in self._others:
            engine = ExternalEngine(self.options.real, level, self.options.threads)
            self._others[level] = replace(self, engine=engine, options=self.options.at(level))
        return self._others[level]

    def targets(self, spec: Spec) -> list[Target]:
        """Return every scheme x platform under which *spec* is judged in this run."""
        return [target for target in self.all_targets(spec) if self.options.selects(*_names(target))]

    def all_targets(self, spec: Spec) -> list[Target]:
        """Return every scheme x platform that applies to *spec*: the first factor of its covering array."""
        return [
            Target(spec, self.library.scheme(name), platform)
            for platform in self.library.platforms.values()
            for name in self.library.schemes_for(spec, platform)
        ]


def _names(target: Target) -> tuple[str, str]:
    return target.scheme.name, target.platform.platform


def open_session(options: Options, extra: tuple[Path, ...] = (), *, only: str = "") -> Session:
    """Register built-ins, load the library with *extra* spec files, and check that functions and specs fit together.

    Plugins must be registered before (quantizer.plugins.discovery). Raises SpecError, PluginError or UnsupportedError.
    *only*: the operator of a single stored case. Functions of plugins for other operators then need no spec.
    """
    # sums in one order, whatever the number of cores
    torch.set_num_threads(1)
    # torch's mkldnn compiles a kernel for every new shape, and every case has new shapes.
    setattr(torch.backends.mkldnn, "enabled", False)  # noqa: B010
    load_built_ins()
    library = options.with_xfails(_with_neighbours(options.library(extra), (*options.specs, *extra)))
    # layers of plugins get their functions from specs, which are known only now
    connect(library.specs)
    for isolated in CURRENT:
        isolated.connect(library.specs)
    for entry in REGISTRY.all():
        spec = library.specs.get(entry.op)
        if spec is None and only not in ("", entry.op):
            continue
        if spec is None:
            raise PluginError(
                f"{entry}: operator {entry.op!r} has no spec. Write {entry.op}.yaml (quantizer spec new)."
            )
        if entry.platform is not None and entry.platform not in library.platforms:
            known = suggestion(entry.platform, library.platforms, "Known")
            raise PluginError(f"{entry}: platform {entry.platform!r}: no such name.{known}")
        check_signature(spec, entry)
        check_declared(spec, entry)
    if options.real is None:
        return Session(options, library, BuiltinEngine())
    return Session(options, library, ExternalEngine(options.real, options.levels[0], options.threads))


def _with_neighbours(library: Library, named: Sequence[Path]) -> Library:
    """Return the library with the specs of further registered operators that lie next to a spec file among *named*.

    A folder of plugins may register more operators than the named spec files declare. These are known, but have no
    items.
    """
    folders = list(dict.fromkeys(resolved(path).parent for path in named if is_file(path)))
    for op in sorted({entry.op for entry in REGISTRY.all()}.difference(library.specs)):
        found = next((folder / f"{op}.yaml" for folder in folders if is_file(folder / f"{op}.yaml")), None)
        if found is not None:
            library = library.with_file(found)
    return library
