"""Finds the requested real engine: declared by a room or an entry point, or served by a user's command."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quantizer.core.errors import EngineError, UnsupportedError
from quantizer.core.files import is_file, resolved
from quantizer.core.rooms import Engine, engines, forms, speaks_for_itself
from quantizer.core.wording import suggestion, to_install
from quantizer.runtime.engines.environments import interpreter
from quantizer.runtime.engines.greeting import Greeting
from quantizer.runtime.engines.process import greeted, serving

OWN = "builtin"
ENCLOSING = "float32_any_order"
"""The platform on which an engine is judged if no platform describes it."""
COMMAND = "command"
"""The value of `--op-engine` if `--op-engine-command` gives the command."""


@dataclass(frozen=True)
class Chosen:
    """The requested engine: `name` (each platform by its own variant) or `name:variant` (only that variant)."""

    backend: str
    variant: str | None = None
    release: str = ""
    """The version requested with `@`. It runs in the environment installed for it."""
    given: tuple[str, ...] = ()
    """The command that starts its worker, if the user gave one."""

    @cached_property
    def entry(self) -> Engine:
        """The declaration of the system. A user's engine declares itself in its greeting."""
        if not self.given:
            return engines()[self.backend]
        said = greeted(self.given)
        home = {ENCLOSING: said.name}
        return Engine(said.name, said.form, "", (), home, extra="", guest=True)

    @property
    def name(self) -> str:
        """Its name in messages and records."""
        variant = "" if self.variant is None else f":{self.variant}"
        return f"{self.entry.name}{variant}{f'@{self.release}' if self.release else ''}"

    def computes(self, platform: str, *, named: bool) -> bool:
        """Return whether the engine is judged on *platform*: it computes that platform, or the run *named* both."""
        home = self.entry.variant_of_platform.get(platform)
        if home is None:
            return named and self.entry.guest
        return self.variant in (None, home) or named

    def identity(self, platform: str) -> str:
        """Return the engine of *platform*: the system, with its variant if it has several, as `name:variant`."""
        if len(self.entry.variant_of_platform) == 1:
            return self.entry.name
        return f"{self.entry.name}:{self.variant or self.entry.variant_of_platform[platform]}"

    @cached_property
    def command(self) -> tuple[str, ...]:
        """The command that starts its worker process: the given one, or an interpreter with the worker's file."""
        if self.given:
            return self.given
        return serving(
            _file(self.entry.worker), interpreter(self.backend, self.release) if self._apart else sys.executable
        )

    @property
    def _apart(self) -> bool:
        """Whether it runs in a separate environment."""
        return bool(self.release) or any(installed_version(name) is None for name in self.entry.distributions)

    @property
    def missing(self) -> str | None:
        """The reason why the engine cannot be used here, or None."""
        if self.given or not self._apart or interpreter(self.backend, self.release):
            return None
        absent = [name for name in self.entry.distributions if installed_version(name) is None]
        if self.release or self.entry.guest:
            asked = f"{self.backend}@{self.release}" if self.release else self.backend
            return f"engine {self.backend}: {asked} not installed; quantizer engine install {asked}"
        step = to_install(self.entry.extra) if self.entry.extra else f"pip install {' '.join(absent)}"
        return f"engine {self.backend}: {' and '.join(absent)} not installed; {step}"

    @cached_property
    def greeting(self) -> Greeting | None:
        """The greeting of its worker; None for an engine whose room has its form, which says what it runs."""
        return greeted(self.command) if self.given or speaks_for_itself(self.entry) else None

    @property
    def lowering(self) -> str:
        """The module that lowers cases to its form."""
        return forms()[self.entry.form]

    @property
    def version(self) -> str:
        """Version of the installed system, empty if it is missing; a local part (`+cpu`) does not count."""
        if self.missing:
            return ""
        if self.greeting is not None and self.entry.guest:
            return self.greeting.version.split("+")[0]
        # +cpu and the like name a build, not a version
        return self.release or (installed_version(self.entry.distributions[0]) or "").split("+")[0]


def names() -> tuple[str, ...]:
    """Return the names that `--op-engine` takes; an engine of one variant is listed without it."""
    variants = (
        f"{name}:{v}"
        for name, entry in engines().items()
        if len(entry.variant_of_platform) > 1
        for v in entry.variant_of_platform.values()
    )
    return (OWN, *engines(), *variants)


def is_known(name: str) -> bool:
    """Return whether `--op-engine` takes NAME or NAME:VARIANT, where VARIANT may be the only one of its engine."""
    backend, _, variant = name.partition(":")
    entry = engines().get(backend)
    return name in names() or (entry is not None and variant in entry.variant_of_platform.values())


def chosen(name: str, command: str = "", *, option: str = "--op-engine") -> Chosen | None:
    """Return the real engine called *name*; None for the built-in engine.

    name: `NAME`, `NAME:VARIANT`, `NAME@VERSION`, or `PYTHON:WORKER`, an interpreter and a file or module that it
    serves. command: a command line that starts an engine, instead of a name. option: the option that messages name as
    the source.

    Raises UnsupportedError for an unknown name, a worker without a greeting, or a form without a lowering.
    """
    if command:
        return _of_command("--op-engine-command", command, _words("--op-engine-command", command))
    # from the right: the path of an interpreter may contain a colon
    python, _, worker = name.rpartition(":")
    # NAME:VARIANT of a known engine comes first
    if not is_known(name) and worker and (shutil.which(python) is not None):
        return _of_command(option, name, serving(worker, python))
    plain, _, release = name.partition("@")
    if not is_known(plain) or (plain == OWN and release):
        raise UnsupportedError(f"{option}={name}: no such name.{suggestion(name, names(), 'Known')}")
    backend, _, variant = plain.partition(":")
    return None if plain == OWN else Chosen(backend, variant or None, release)


def files(name: str, command: str = "") -> tuple[Path, ...]:
    """Return the files of an engine that its name or command mentions, without running any."""
    words = [name.rpartition(":")[2]] if not command else _words("--op-engine-command", command)
    if not command and (entry := engines().get(name.partition("@")[0].partition(":")[0])) is not None:
        words = [_file(entry.worker)]
    return tuple(resolved(path) for path in map(Path, words) if is_file(path))


def _words(option: str, command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as err:
        raise UnsupportedError(f"{option}={command}: {err}. Quote it as a shell does.") from None


def _of_command(option: str, text: str, command: tuple[str, ...]) -> Chosen:
    try:
        said = greeted(command)
    except EngineError as err:
        raise UnsupportedError(f"{option}={text}: {err}.") from None
    if said.form not in forms():
        raise UnsupportedError(
            f"{option}={text}: form {said.form!r}: no such form.{suggestion(said.form, forms(), 'Known')}"
        )
    if said.name in (*names(), ""):
        raise UnsupportedError(f"{option}={text}: its name is {said.name!r}. Give it a NAME of its own.")
    return Chosen(said.name, given=command)


def _file(worker: str) -> str:
    """Return the file of a worker: our own modules need not be importable in its interpreter."""
    if worker.endswith(".py"):
        return worker
    found = importlib.util.find_spec(worker)
    return found.origin if found is not None and found.origin else worker


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is missing."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
