"""A run under way: plugins registered, library loaded, engine chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from quantizer.conformance.options import Options
from quantizer.conformance.target import Target
from quantizer.core.errors import PluginError
from quantizer.core.library import Library
from quantizer.core.spec import Spec
from quantizer.core.wording import suggestion
from quantizer.ops import REGISTRY, check_declared, check_signature, load_built_ins
from quantizer.plugins.bridge import connect
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.own import OwnEngine
from quantizer.runtime.engines.protocol import Engine


@dataclass(frozen=True)
class Session:
    """A loaded library with plugins registered, and the engine under test."""

    options: Options
    library: Library
    engine: Engine

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


def open_session(options: Options, extra: tuple[Path, ...] = ()) -> Session:
    """Register built-ins, load the library with *extra* spec files, and check that functions and specs fit together.

    Plugins are registered before (quantizer.plugins.discovery). Raises SpecError, PluginError, UnsupportedError.
    """
    torch.set_num_threads(1)
    # oneDNN compiles a kernel for every new shape, and every case has new shapes.
    setattr(torch.backends.mkldnn, "enabled", False)  # noqa: B010
    load_built_ins()
    library = options.with_xfails(options.library(extra))
    connect(library.specs)
    for entry in REGISTRY.all():
        spec = library.specs.get(entry.op)
        if spec is None:
            raise PluginError(
                f"{entry}: operator {entry.op!r} has no spec. Write {entry.op}.yaml (quantizer spec new)."
            )
        if entry.platform is not None and entry.platform not in library.platforms:
            known = suggestion(entry.platform, library.platforms, "Known")
            raise PluginError(f"{entry}: platform {entry.platform!r}: no such name.{known}")
        check_signature(spec, entry)
        check_declared(spec, entry)
    return Session(options, library, OwnEngine() if options.real is None else ExternalEngine(options.real))
