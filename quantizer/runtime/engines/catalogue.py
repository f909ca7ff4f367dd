"""The real engine that was asked for, among those of the rooms."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from quantizer.core.errors import UnsupportedError
from quantizer.core.rooms import Engine, engines
from quantizer.core.wording import suggestion, to_install

OWN = "own"


@dataclass(frozen=True)
class Chosen:
    """The engine that was asked for: `name`, each platform by its own variant, or `name:variant`, that one alone."""

    backend: str
    variant: str | None = None

    @property
    def entry(self) -> Engine:
        """The installed system."""
        return engines()[self.backend]

    def computes(self, platform: str, *, named: bool) -> bool:
        """Return whether the engine is judged on *platform*: at home, or where it was *named* with it."""
        home = self.entry.home.get(platform)
        return home is not None and (self.variant in (None, home) or named)

    def identity(self, platform: str) -> str:
        """Return what runs on *platform*: the system, and its variant where it has several, as `name:variant`."""
        variant = self.variant or self.entry.home[platform]
        return self.backend if len(self.entry.home) == 1 else f"{self.backend}:{variant}"

    @property
    def missing(self) -> str | None:
        """Why the engine cannot be used here, or None."""
        absent = [name for name in self.entry.distributions if _version(name) is None]
        if not absent:
            return None
        step = to_install(self.entry.extra) if self.entry.extra else f"pip install {' '.join(absent)}"
        return f"engine {self.backend}: {' and '.join(absent)} not installed; {step}"

    @property
    def version(self) -> str:
        """Version of the installed system, empty where it is missing; a local part (`+cpu`) does not count."""
        return (_version(self.entry.distributions[0]) or "").split("+")[0]


def names() -> tuple[str, ...]:
    """Return every name that `--op-engine` takes."""
    variants = (f"{name}:{v}" for name, entry in engines().items() if len(entry.home) > 1 for v in entry.home.values())
    return (OWN, *engines(), *variants)


def chosen(name: str) -> Chosen | None:
    """Return the real engine called *name*, None for our own; UnsupportedError for a name that nothing has."""
    if name not in names():
        raise UnsupportedError(f"--op-engine={name}: no such name.{suggestion(name, names(), 'Known')}")
    backend, _, variant = name.partition(":")
    return None if name == OWN else Chosen(backend, variant or None)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
