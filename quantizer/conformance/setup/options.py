"""The parsed options of the command line and the ini file."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from quantizer.conformance.setup.readings import with_readings
from quantizer.conformance.setup.releases import at_release
from quantizer.conformance.setup.xfails import with_xfails
from quantizer.core.errors import UnsupportedError
from quantizer.core.files import exists, is_file, is_folder, resolved
from quantizer.core.levels import ALL, asked
from quantizer.core.library import SCHEMES_FILE, Library, load_library, platform_files, spec_files
from quantizer.core.verdict import CHECKS
from quantizer.core.wording import suggestion
from quantizer.plugins.discovery import Plugin
from quantizer.reporting.shards import Shard
from quantizer.reporting.thresholds import Thresholds, read_thresholds
from quantizer.runtime.engines.catalogue import Chosen, chosen
from quantizer.runtime.engines.pins import held_to
from quantizer.runtime.isolation.launch import MEMORY, PATIENCE

PROFILES = ("gate", "dev", "nightly")
THREADS = (2, 4)
"""The numbers of threads, besides 1, that nightly runs ask an engine for."""


@dataclass(frozen=True)
class Options:
    """Every `--op-...` option, with resolved paths. An empty list selects everything."""

    root: Path
    specs: tuple[Path, ...] = ()
    plugins: tuple[Path, ...] = ()
    engine: str = "builtin"
    engine_command: str = ""
    """The command line of a worker, in place of an engine's name."""
    isa: str = ""
    """The level of instructions to which a real engine is limited, `host` or `all`; empty: the default."""
    platforms: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    checks: tuple[str, ...] = CHECKS
    profile: str = "gate"
    reports: Path = Path("reports/out")
    cases: Path = Path("cases")
    baseline: Path | None = None
    xfails: Path | None = None
    readings: tuple[str, ...] = ()
    golden_update: str | None = None
    in_process: bool = False
    """Whether functions of plugins run in the judge's own process, for a debugger."""
    plugin_python: str = ""
    """The interpreter of the process of plugins; empty: this one."""
    plugin_limits: tuple[float, float] = (PATIENCE, MEMORY)
    """The time limit of one call of a plugin's function (seconds), and the memory limit of its process (gigabytes)."""
    shard: Shard | None = None
    _met: list[tuple[Sequence[Path], Library]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The library of the spec files collected so far, and these files."""

    def __post_init__(self) -> None:
        real = self.real
        for option, value, known in (
            ("--op-profile", self.profile, PROFILES),
            *(("--op-check", check, CHECKS) for check in self.checks),
        ):
            if value not in known:
                raise UnsupportedError(f"{option}={value}: no such name.{suggestion(value, known, 'Known')}")
        asked(self.isa)
        for option, number in zip(("--op-plugin-timeout", "--op-plugin-memory"), self.plugin_limits, strict=True):
            if not 0 < number < math.inf:
                raise UnsupportedError(f"{option}={number:g}: must be a number above 0.")
        if self.plugin_python and not is_file(Path(self.plugin_python)):
            raise UnsupportedError(f"--op-plugin-python={self.plugin_python}: no such file. Name an interpreter.")
        if self.plugin_python and self.in_process:
            raise UnsupportedError("--op-in-process: is this interpreter. Leave --op-plugin-python out.")
        for platform in self.platforms:
            if real is not None and not real.computes(platform, named=True):
                home = suggestion(platform, real.entry.variant_of_platform, "It computes")
                raise UnsupportedError(f"--op-platform={platform}: engine {real.name} does not compute it.{home}")

    @cached_property
    def real(self) -> Chosen | None:
        """The requested real engine; None for the built-in one."""
        return chosen(self.engine, self.engine_command)

    @property
    def under_test(self) -> str:
        """The engine's name in messages and run.json: the requested one, or the one that a command's worker reports."""
        return self.real.name if self.real and self.engine_command else self.engine

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads, besides 1, on which a real engine repeats cases; none outside the nightly profile."""
        return THREADS if self.profile == "nightly" else ()

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The instruction-set levels of every item, the default level first; one empty name for the built-in engine."""
        if self.real is None:
            return ("",)
        backend = self.real.backend
        # levels that the engine cannot tell apart become one
        return tuple(dict.fromkeys(held_to(backend, level) for level in asked(self.isa)))

    def at(self, level: str) -> Options:
        """Return the options of a run at *level* only, which is one of `levels`."""
        return replace(self, isa=level) if self.isa == ALL and len(self.levels) > 1 else self

    @cached_property
    def thresholds(self) -> Thresholds:
        """The project's thresholds for comparing a run with its baseline."""
        return read_thresholds(self.root)

    def library(self, extra: Iterable[Path] = ()) -> Library:
        """Return the shipped and the named specs and those of *extra*.

        UnsupportedError for a platform or scheme that no file declares; SpecError for a file that cannot be read.
        """
        library = at_release(with_readings(load_library((*self.specs, *extra)), self.readings), self.real)
        enclosing = [name for name, platform in library.platforms.items() if platform.enclosing is not None]
        # an enclosing platform describes an engine: our functions are judged on it only on request
        if self.real is None and (unasked := set(enclosing).difference(self.platforms)):
            library = library.without(unasked)
        for option, values, known in (
            ("--op-platform", self.platforms, library.platforms),
            ("--op-scheme", self.schemes, library.schemes),
        ):
            for value in values:
                if value not in known:
                    raise UnsupportedError(f"{option}={value}: no such name.{suggestion(value, known, 'Known')}")
        return library

    def met(self, extra: list[Path]) -> Library:
        """Return the library with the spec files that pytest has found so far; only new ones are read."""
        # a list of one entry, because the fields of a frozen dataclass cannot be assigned
        known, library = self._met.pop() if self._met else ([], None)
        if library is None or [*known] != extra[: len(known)]:
            library = self.library(extra)
        else:
            for path in extra[len(known) :]:
                library = library.with_file(resolved(path))
        self._met.append(([*extra], library))
        return library

    def check_named(self) -> None:
        """Reject an engine that is not installed, and a path of specs that does not exist or holds no spec."""
        if self.real is not None and self.real.missing is not None:
            raise UnsupportedError(f"--op-engine={self.engine}: {self.real.missing.removeprefix('engine ')}.")
        for path in self.specs:
            shown = self.shown(path)
            if not exists(path):
                raise UnsupportedError(f"--op-specs={shown}: no such file or folder.")
            if is_folder(path) and not (spec_files([path]) or platform_files([path]) or is_file(path / SCHEMES_FILE)):
                raise UnsupportedError(
                    f"--op-specs={shown}: holds no spec, platform or scheme. Name a folder of *.yaml."
                )

    def check_plugins(self, plugins: Sequence[Plugin]) -> None:
        """Reject a path of plugins in which no file registers anything."""
        for path in self.plugins:
            mine = [plugin for plugin in plugins if resolved(plugin.origin).is_relative_to(resolved(path))]
            if mine and not any(one.operators or one.datasets or one.metrics or one.specs for one in mine):
                raise UnsupportedError(
                    f"--op-plugins={self.shown(path)}: registers nothing. Decorate its functions with @operator."
                )

    def with_xfails(self, library: Library) -> Library:
        """Return *library* with the known failures of the run; SpecError if their file is wrong or out of date."""
        return library if self.xfails is None else with_xfails(library, self.xfails)

    def selects(self, scheme: str, platform: str) -> bool:
        """Return whether items of *scheme* on *platform* were requested.

        A real engine is judged on the platforms that it computes.
        """
        if self.real is not None and not self.real.computes(platform, named=platform in self.platforms):
            return False
        return (not self.schemes or scheme in self.schemes) and (not self.platforms or platform in self.platforms)

    @property
    def narrowed(self) -> bool:
        """Whether an option leaves items or checks out."""
        return bool(self.shard or self.narrowings)

    @property
    def narrowings(self) -> tuple[str, ...]:
        """The options that leave the same items or checks out of every shard."""
        parts = [f"--op-platform={name}" for name in self.platforms] + [f"--op-scheme={name}" for name in self.schemes]
        return (*parts, *(f"--op-check={name}" for name in self.checks if set(self.checks) != set(CHECKS)))

    @property
    def arguments(self) -> str:
        """The options that a command must repeat to run an item again."""
        parts = [f" --op-specs={path}" for path in self._shown(self.specs)]
        parts += [f" --op-plugins={path}" for path in self._shown(self.plugins)]
        parts += [f" --op-plugin-python={self.shown(Path(self.plugin_python))}"] if self.plugin_python else []
        parts += [f" --op-engine={self.engine}"] if self.engine != "builtin" else []
        parts += [f" --op-engine-command={shlex.quote(self.engine_command)}"] if self.engine_command else []
        parts += [f" --op-reading={reading}" for reading in self.readings]
        parts += [f" --op-isa={self.isa}"] if self.isa else []
        return "".join(parts)

    def naming(self, platform: str) -> str:
        """Return the option, after a space, that the engine needs to be judged on *platform*; empty without one."""
        if not platform or self.real is None or self.real.computes(platform, named=False):
            return ""
        return f" --op-platform={platform}"

    def _shown(self, paths: tuple[Path, ...]) -> list[Path]:
        return [path.relative_to(self.root) if path.is_relative_to(self.root) else path for path in paths]

    def shown(self, path: Path) -> str:
        """Return *path*, relative to the root of the run if it lies below it."""
        return str(self._shown((path,))[0])
