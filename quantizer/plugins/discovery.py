"""Finds plugins (entry points, named files and folders, AIPUPLUGIN_PATH, ./plugin) and loads them.

It imports neither torch nor an operator, so that listing sources is cheap.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from quantizer.core.errors import PluginError
from quantizer.core.files import is_file, is_folder, resolved
from quantizer.core.wording import shown_path

GROUP = "quantizer.operators"
SEARCH_PATH = "AIPUPLUGIN_PATH"
LOCAL = "plugin"
PREFIX = "aipubt_"
"""The common start of all documented prefixes: aipubt_opt_op_, aipubt_opt_dataset_, aipubt_opt_metric_, aipubt_."""


@dataclass(frozen=True)
class FileSource:
    """A Python file, which may be the __init__.py of a package."""

    path: Path

    @property
    def name(self) -> str:
        """The module's name."""
        return self.path.parent.name if self.path.name == "__init__.py" else self.path.stem

    def __str__(self) -> str:
        return shown_path(self.path)


@dataclass(frozen=True)
class EntryPointSource:
    """A module that an installed distribution provides as an entry point."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        """The entry point's name."""
        return self.entry.name

    def __str__(self) -> str:
        return self.entry.dist.name if self.entry.dist else self.entry.value


Source = FileSource | EntryPointSource


@dataclass(frozen=True)
class Plugin:
    """The registrations of one source."""

    name: str
    origin: str
    """The name of the distribution, or the path of the file."""
    versions: tuple[str, ...]
    """The versions of its registrations, each once, in ascending order."""
    operators: tuple[str, ...] = ()
    """Operators, and Compass layer types for functions in the style of AIPUBuilder, sorted."""
    datasets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    specs: tuple[Path, ...] = ()
    """Folders of specs that belong to it."""


def load_plugins(paths: Sequence[Path] = (), environment: Mapping[str, str] | None = None) -> list[Plugin]:
    """Load every plugin once and return its registrations, also if it was loaded before.

    PluginError with file, line and exception for the first broken plugin, whose registrations are undone. Layer
    functions in the style of AIPUBuilder are registered by `quantizer.plugins.bridge.connect` once specs are known.
    """
    # loading takes the sources that are defined here, so it imports this module
    from quantizer.plugins.loading import load

    found = sources(paths, os.environ if environment is None else environment)
    return [load(source) for source in found]


def spec_folders(plugins: Sequence[Plugin]) -> list[Path]:
    """Return the folders of specs that belong to *plugins*, each once."""
    return list(dict.fromkeys(folder for plugin in plugins for folder in plugin.specs))


def installed() -> list[EntryPointSource]:
    """Return the entry points of installed distributions, sorted by distribution and name."""
    # the order of entry_points is that of sys.path, which differs between machines
    found = map(EntryPointSource, entry_points(group=GROUP))
    return sorted(found, key=lambda source: (str(source), source.name))


def sources(paths: Sequence[Path], environment: Mapping[str, str]) -> list[Source]:
    """Return every source once: entry points, *paths*, AIPUPLUGIN_PATH, then ./plugin, each sorted by name.

    PluginError for a path that does not exist or a named folder without a Python file.
    """
    files: dict[Path, FileSource] = {}
    for path in _files(paths, environment):
        # resolved, so that a file that is named twice is one source
        files.setdefault(resolved(path), FileSource(resolved(path)))
    return [*installed(), *files.values()]


def _files(paths: Sequence[Path], environment: Mapping[str, str]) -> Iterator[Path]:
    for path in paths:
        if is_folder(path):
            # __init__.py and __main__.py register nothing of their own
            found = sorted(file for file in path.glob("*.py") if not file.name.startswith("__"))
            if not found:
                raise PluginError(f"{shown_path(path)}: holds no plugin. Name a folder with *.py files, or a file.")
            yield from found
        elif is_file(path):
            yield path
        else:
            raise PluginError(f"{shown_path(path)}: no such file or folder. Name a plugin file, or a folder of them.")
    for text in environment.get(SEARCH_PATH, "").split(os.pathsep):
        if not text:
            continue
        if not is_folder(Path(text)):
            raise PluginError(f"{SEARCH_PATH}: {text}: no such folder. Create it, or take it out of {SEARCH_PATH}.")
        yield from _prefixed(Path(text))
    if Path(LOCAL).is_dir():
        yield from _prefixed(Path(LOCAL))


def _prefixed(folder: Path) -> list[Path]:
    """Return the modules and packages of *folder* that carry the prefix, sorted by name."""
    found = {path.stem: path for path in folder.glob(f"{PREFIX}*.py")}
    found |= {path.parent.name: path for path in folder.glob(f"{PREFIX}*/__init__.py")}
    return [found[name] for name in sorted(found)]
