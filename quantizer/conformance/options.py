"""What the command line and the ini file asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quantizer.conformance.xfails import with_xfails
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import Library, load_library
from quantizer.core.model_errors import suggestion
from quantizer.core.verdict import CHECKS

PROFILES = ("gate", "dev", "nightly")
ENGINES = ("own",)


@dataclass(frozen=True)
class Options:
    """Every `--op-...` option, paths resolved; empty means all."""

    root: Path
    specs: tuple[Path, ...] = ()
    plugins: tuple[Path, ...] = ()
    engine: str = "own"
    platforms: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    checks: tuple[str, ...] = CHECKS
    profile: str = "gate"
    reports: Path = Path("reports/out")
    cases: Path = Path("cases")
    baseline: Path | None = None
    xfails: Path | None = None
    golden_update: str | None = None

    def __post_init__(self) -> None:
        for option, value, known in (
            ("--op-profile", self.profile, PROFILES), ("--op-engine", self.engine, ENGINES),
            *(("--op-check", check, CHECKS) for check in self.checks),
        ):  # fmt: skip
            if value not in known:
                raise UnsupportedError(f"{option}={value}: no such name.{suggestion(value, known, 'Known')}")

    def library(self, extra: Iterable[Path] = ()) -> Library:
        """Return the shipped and the named specs and those of *extra*.

        UnsupportedError for a platform or scheme that no file declares; SpecError for a file that cannot be read.
        """
        library = load_library((*self.specs, *extra))
        for option, values, known in (
            ("--op-platform", self.platforms, library.platforms), ("--op-scheme", self.schemes, library.schemes),
        ):  # fmt: skip
            for value in values:
                if value not in known:
                    raise UnsupportedError(f"{option}={value}: no such name.{suggestion(value, known, 'Known')}")
        return library

    def with_xfails(self, library: Library) -> Library:
        """Return *library* with the known failures of the run; SpecError where their file is wrong or out of date."""
        return library if self.xfails is None else with_xfails(library, self.xfails)

    def selects(self, scheme: str, platform: str) -> bool:
        """Return whether items of *scheme* on *platform* were asked for."""
        return (not self.schemes or scheme in self.schemes) and (not self.platforms or platform in self.platforms)

    @property
    def narrowed(self) -> bool:
        """True when an option leaves items or checks out."""
        return bool(self.platforms or self.schemes) or set(self.checks) != set(CHECKS)

    @property
    def arguments(self) -> str:
        """The options that a command must repeat to run an item again."""
        parts = [f" --op-specs={path}" for path in self._shown(self.specs)]
        parts += [f" --op-plugins={path}" for path in self._shown(self.plugins)]
        parts += [f" --op-engine={self.engine}"] if self.engine != "own" else []
        return "".join(parts)

    def _shown(self, paths: tuple[Path, ...]) -> list[Path]:
        return [path.relative_to(self.root) if path.is_relative_to(self.root) else path for path in paths]

    def shown(self, path: Path) -> str:
        """Return *path* relative to the root of the run where it lies below it."""
        return str(self._shown((path,))[0])
